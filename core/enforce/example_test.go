package enforce_test

import (
	"context"
	"fmt"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
)

func ExampleLimiter() {
	limiter, err := enforce.New(nil, core.MustParse("mails: 3/1h"), enforce.Options{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	for _, mails := range []int64{2, 2, 1} {
		res, err := limiter.AllowN(ctx, "alice", mails)
		if err != nil {
			panic(err)
		}
		fmt.Println(res.Outcome, res.Remaining)
	}
	// Output:
	// admitted 1
	// refused 1
	// at-limit 0
}
