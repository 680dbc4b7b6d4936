// Package guard limits HTTP requests: a [Guard] decides which limits hold for a request, counts it, and answers it if it
// is over one of them. It knows no framework and no store; those are in the packages around it.
//
// A [Rule] is a policy, such as "100/1m", and the code around it: the key by which requests are counted, their cost, and
// the handler of those over the limit. A Guard enforces rules. An adapter (nethttp, ginmw, echomw, echo5mw, fibermw, fiber3mw, grpcmw) makes
// middleware of it. The sections below are the main tasks; most have a runnable example further down.
//
// # One limit for all routes
//
// [Must] makes a Guard of a policy and a key. It counts in the process, and panics on a mistake, as it is for constants:
//
//	limit := nethttp.Limit(guard.Must("2/1m", keyfunc.IP()))
//	handler := limit(mux)
//
// [New] takes a [Config], which has everything else. Its error lists every mistake at once.
//
// # Limits for some routes
//
// [Guard.With] makes an annotation for the routes on which it is mounted. [Config].Routes is a table of patterns as the
// router has registered them; Instead replaces the rules that hold everywhere, and other entries add to them:
//
//	g, err := guard.New(guard.Config{
//		Rule: guard.Rule{Policy: "100/1m", Key: keyfunc.IP()},
//		Routes: map[string]guard.Rule{
//			"POST /login": {Policy: "3/1m; fail closed"},
//			"GET /health": {Instead: true}, // no limit
//		},
//	})
//
// # Limits for each customer
//
// A key names the caller: an address, a user, a header, or several of them, also with the route. Tiers change the
// numbers, and nothing else. Further Rules are asked after the first, so write the narrowest key first:
//
//	g, err := guard.New(guard.Config{
//		Rule: guard.Rule{
//			Policy: "user: 60/1h",
//			Key:    keyfunc.Header("X-Api-Key"),
//			Tier:   tierOf,
//			Tiers:  map[string]string{"pro": "5000/1h", "staff": "unlimited"},
//		},
//		Rules: []guard.Rule{{Policy: "everybody: 10000/1s", Key: keyfunc.Const("all")}},
//	})
//
// # Counting in Redis
//
// With a Store, all processes count together. Name the policy, because all of one name share counts there. Its fail word
// says what happens while the store fails:
//
//	rdb := redis.NewUniversalClient(redisstore.ClientOptions("127.0.0.1:6379"))
//	store, err := redisstore.New(rdb, redisstore.Options{})
//	if err != nil {
//		return err
//	}
//	g, err := guard.New(guard.Config{
//		Rule:  guard.Rule{Policy: "api: 100/1m; fail local 1/4", Key: keyfunc.IP()}, // in each of four processes
//		Store: store,
//	})
//
// # Costs, and answers over the limit
//
// Cost takes units before the handler, and Settle is called after it with what [Report] was given. After counts when the
// request is over, such as logins that failed. OverLimit is [Reject], which is the default, [Degrade], [Break], a
// [HandlerFunc], or the Handle of an adapter, which calls a handler of the framework:
//
//	g, err := guard.New(guard.Config{Rule: guard.Rule{
//		Policy:    "tokens: 1000/1h debt 500",
//		Key:       keyfunc.User(userKey{}),
//		Cost:      func(keyfunc.Request) int64 { return 300 }, // an estimate
//		Settle:    guard.Reported,                             // what handlers report
//		OverLimit: guard.Break(guard.BreakOptions{Refusals: 20, Open: time.Minute}),
//	}})
//
// # Policies that change
//
// A Source changes policies while the program runs. An atomic.Pointer of a [Set] is one, and so are those of the packages
// below core/policies, which read files and Redis:
//
//	sets := new(atomic.Pointer[guard.Set])
//	g, err := guard.New(guard.Config{
//		Rule:   guard.Rule{Policy: "api: 1/1h fixed-window", Key: keyfunc.Header("X-Customer")},
//		Source: sets,
//	})
//
// A Set has other numbers, of policies, tiers and single keys, and may put a policy on trial (shadow) and enforce it,
// change its fail word and the length of its wait, or start afresh (epoch):
//
//	sets.Store(&guard.Set{
//		Revision: "1",
//		Policies: map[string]string{"api": "2/1h fixed-window; shadow"},
//		Keys:     map[string]map[string]string{"api": {"header.x-customer=7": "500/1h fixed-window"}},
//	})
//
// # At the start, and in use
//
// [Guard.Lint] returns what may not be meant, and [Guard.Rules] and [Guard.Describe] what holds for each route.
// Config.Observe is called for each decision. [FromContext], [Report], [Degraded] and [Detach] take the context of the
// request in a handler.
//
// A program without an adapter calls [Guard.Check], [Verdict.SetHeaders] and [Verdict.Finish] itself. One for another
// framework implements [Exchange], and calls [Guard.Serve].
package guard
