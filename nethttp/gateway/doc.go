// Package gateway answers gateways that ask over HTTP whether a request may pass: nginx by auth_request, Caddy by
// forward_auth, Traefik by ForwardAuth, and Envoy by ext_authz. So limits are set once, in front of services in any
// language:
//
//	g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "api: 100/1m", Key: keyfunc.IP()}, Store: store})
//	...
//	check, err := gateway.New(g, gateway.Options{
//		Style:   gateway.Nginx,
//		Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
//		Deny:    http.StatusForbidden,
//	})
//	...
//	http.ListenAndServe("127.0.0.1:9090", check)
//
// [Nginx], [Forwarded] and [Envoy] are the styles: the headers in which a gateway says what the request is.
//
// The guard sees the request as the client sent it to the gateway: its method, path, host, headers and address, so that
// keyfunc.IP is the client. The body never comes.
//
// docs/gateways.md in the repository has the configuration of each gateway. Where a service is written in Go, nethttp.Limit
// within it needs no gateway, and sees the end of a request as well.
package gateway
