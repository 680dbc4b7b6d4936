// Package follow lets a program go by numbers that change while it runs, such as those of a file or of a fleet.
//
// A [Set] has other numbers for policies, tiers and single keys, and a [Source] knows the Set of now. enforce.Options and
// guard.Config take a Source; an *atomic.Pointer[Set] is one, and packages filesource and redissource have others:
//
//	numbers := new(atomic.Pointer[follow.Set])
//	limiter, err := enforce.New(store, core.MustParse("mail: 10/1s"), enforce.Options{Source: numbers})
//	...
//	numbers.Store(&follow.Set{
//		Policies: map[string]string{"mail": "20/1s"},
//		Keys:     map[string]map[string]string{"mail": {"customer-7": "100/1s", "customer-8": follow.Blocked}},
//	})
//
// [Set.Unused] finds names that no policy has, of all that are [Named]. enforce.Fits and enforce.FitsTier check a text
// before it is published.
//
// # Writing a Source
//
// A Source with a goroutine is a [Listener] as well: it is given a [Follower] for each Limiter and Guard, which has a
// [Rule] for each policy and whose Prepare makes a Set ready before a request sees it. Prepare returns an [Entry] for
// each text of the Set, whose Field, Tier and Key say where it stands and whose Err says why it is not used. A [Lagger]
// says since when its Set may be out of date.
//
// # Following a Source
//
// A package such as guard makes its Follower by [NewFollower], and holds what it makes of the Sets in a [Following],
// which [NewFollowing] returns: Now returns that for the Set of now, and Prepare makes it before.
package follow
