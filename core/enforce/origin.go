package enforce

import "github.com/weir-go/weir/core"

// origin is the store that has charged units or granted a permit, and to which they go back.
type origin uint8

const (
	unset      origin = iota
	nowhere           // no store: a policy that failed open let the request pass
	inStore           // the store of the Limiter
	inFallback        // the in-process store that decides while the store fails
)

// originOf returns the store that has charged the units of a receipt. The Result of rates and permits together does not
// say it.
func originOf(r *core.Result) origin {
	switch {
	case !r.Local:
		return inStore
	case r.At > 0:
		return inFallback
	default:
		return nowhere
	}
}
