package policies

// Format is the format of a [Document] as JSON. A reader refuses a later one as a whole.
const Format = 1

// Bounds of a [Document]. What is beyond one is a mistake, and nothing of the document is used.
const (
	MaxText     = 1 << 10   // bytes of the text of a policy, tier or key
	MaxPolicies = 1000      // policies of one document
	MaxTiers    = 1000      // tiers of one policy
	MaxKeys     = 1000      // keys of one policy
	MaxApps     = 1000      // further apps that use one policy
	MaxSize     = 256 << 10 // bytes of a document as JSON
)
