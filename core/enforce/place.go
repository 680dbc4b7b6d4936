package enforce

import "github.com/weir-go/weir/core"

// place is the store that was charged, to which a refund goes.
type place uint8

const (
	nowhere    place = 1 + iota // not at all: a policy that failed open let the request pass
	inStore                     // in the store
	inFallback                  // in the in-process store that decides while the store fails
)

// placeOf returns where the units of a receipt were charged. The Result of rates and permits together does not say:
// permits may have come from another place than the units.
func placeOf(r *core.Result) place {
	switch {
	case !r.Local:
		return inStore
	case r.At > 0:
		return inFallback
	default:
		return nowhere
	}
}
