// Package obey lets a client keep to the limits of the servers that it calls. Its Transport is an [http.RoundTripper]
// that reads what answers say of limits, and lets requests wait until the server will admit them, so that hardly any is
// refused:
//
//	transport, err := obey.New(obey.Options{})
//	...
//	client := &http.Client{Transport: transport}
//
// One Transport serves all goroutines and all servers of a program. A server that says nothing of a limit is never
// waited for.
//
// # What is read
//
// Of each answer these fields, of which the first that is there counts:
//
//	Retry-After                           on 429, 503 and 3xx: until then nobody sends, then one
//	                                      request, and when that has been answered, all
//	RateLimit, RateLimit-Policy           of draft-ietf-httpapi-ratelimit-headers, as lists or in
//	                                      the one line of draft 7; all quotas in them hold
//	RateLimit-Limit, -Remaining, -Reset   of older drafts
//	X-RateLimit-Limit, -Remaining,        whose Reset may be seconds to wait, Unix seconds or
//	-Reset, and X-Rate-Limit-...          milliseconds by the server's clock, or a date
//
// Fields that cannot be read, with numbers below 0 or above 10^15, or longer than 8 KiB, count as absent, and
// [Options].Observe is called once for each. A time of more than a day counts as a day. Answers out of a cache (Age)
// say nothing. A quota in another unit than requests (qu) is left alone.
//
// # When requests are sent
//
// Until the first answer, ten requests of a key are under way. From then on they go one after the other, evenly: what is
// left of a window is spread over the time that is left of it, and of a meter or a sliding window as much is sent as
// comes back. Nothing need be known of the server's algorithm: the Transport recognises by the answers whether a limit
// is reset or flows. Processes that share a limit need not know of each other either: each sees in the numbers what the
// others send, and they come to equal shares.
//
// Requests of a key are sent in the order in which they came. None waits for longer than [Options].MaxWait: then it is
// sent if the server would admit it, and fails with a [*WaitError] if not.
//
// # Whose limit
//
// Requests of one scheme, host and credential (Authorization) share a line, so that what is refused to one credential
// delays no other. [Options].Key chooses otherwise, such as by an API key in another field:
//
//	Key: func(r *http.Request) string { return r.URL.Host + "#" + r.Header.Get("X-Api-Key") }
//
// At most 10 000 keys are remembered; those that were not used for longest are forgotten first.
package obey
