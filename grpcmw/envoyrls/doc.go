// Package envoyrls is Envoy's rate limit service on weir: a server in the place of envoyproxy/ratelimit, with the
// configuration that its users have. Most need no more than the command weir rls, which is this package with the
// environment of that service. docs/envoy.md in the repository has all in which the two differ.
//
// [New] builds a [Server] on a store, [Server.Load] gives it limits, also while it answers, and [Server.Register] and
// [Server.Handler] put it on servers of gRPC and HTTP:
//
//	store, err := redisstore.New(client, redisstore.Options{Deadline: 15 * time.Millisecond}) // Envoy waits for 20
//	...
//	service, err := envoyrls.New(store, envoyrls.Config{})
//	...
//	err = service.Load(envoyrls.File{Name: "shop.yaml", Data: limits})
//	...
//	server := grpc.NewServer()
//	service.Register(server)
//
// # The configuration
//
// A [Directory] has it in files, and [Server.Follow] loads them again when they change; Directory.Prefix and
// SkipDotFiles select files. An [XDS] is a server that sends it, with XDS.TLS, NodeMetadata, Connect and MaxMessage, and
// [Server.FollowXDS] takes it from there. In the [Config], MergeDomains lets several files have one domain, and
// NearLimit, Metadata, Quota and ChargeAll change what is counted and answered.
//
// # Health
//
// The health service of gRPC, and /healthcheck, say whether there is a configuration: Config.StartHealthy and
// NeedDomains change that, [Server.SetHealthy] adds what else the service needs, and [Server.Drain] makes it unhealthy
// before the program ends. [Server.ResetHandler] is for those who may lift limits.
//
// # What is charged
//
// The descriptors of a request are asked for together, in one round trip. Either each of them is charged, or none: what
// was taken is given back when one refuses. A descriptor that has a hits_addend is for what was spent already. It is
// charged in any case, as far as there is something left, and refuses if that is not all. A hits_addend of 0 only looks
// whether there is something left, and is_negative_hits gives the hits back. What a rule in shadow or quota mode would
// refuse refuses nothing.
//
// A limit in a descriptor is counted by the descriptor and its period, whatever number it has.
package envoyrls
