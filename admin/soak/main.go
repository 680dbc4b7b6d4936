// Command soak disturbs a whole fleet, and measures what a fleet costs Redis. It needs redis-server and Linux:
//
//	go run ./soak kill -rounds 50                  # kill whatever there is, in any order; the record in SQLite
//	go run ./soak kill -rounds 50 -db postgres     # or in PostgreSQL, or MariaDB, which are killed as well
//	go run ./soak kill -writers 0                  # without a crowd on one policy
//	go run ./soak kill -seed 7                     # the faults of another run again
//	go run ./soak cost -apps 50 -policies 200 -rate 10
//
// # kill
//
// A fleet is a Redis without persistence, a database, two weir-admin that serve it, and for each of three apps a service
// that follows it with a bridge. Two people change policies through both servers all the time, and beside them 200 at
// once one and the same policy: a third by the revision that they have read, a third whatever there is, and a third by a
// revision that is over. In each round one to three faults come at once, in random order: Redis, a server, a service or
// the database is killed, or stopped for a while; FLUSHALL; a hash, or a part of one, is deleted; an earlier hash is put
// back. One of them kills a server or the database as kill -9 does. After each fifth round something worse happens to
// SQLite: the database is restored from a backup, or a copy of it is served beside it.
//
// When all run again, this has to hold within a minute:
//
//   - what a server has acknowledged is in the history, word for word, and the latest of each policy holds, unless a later
//     one whose answer was lost does; nothing is in it that nobody has sent, or that was sent for a revision that was over;
//   - each version of a policy has its row in the audit, and each row is a link of the chain, from the first one on and with
//     the lines that the servers have written;
//   - Redis has the document of each app as the record says it, and so has each service;
//   - no service has ever gone back, also not after it was killed: it began with what its bridge had;
//   - a service whose bridge was deleted while Redis was gone goes by its code;
//   - there was no alarm without a reason, and there was one for a backup and for a copy, in which nothing was published
//     until somebody had adopted the app.
//
// # cost
//
// It changes policies at a rate, of apps of that many policies and one whose document is as large as one may be, and
// prints what Redis says the commands took, and how long decisions of a store took beside it, compared with those
// without. -quick checks in a few seconds that it works, and that no script has a document in it; it prints no times.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9/logging"

	"github.com/weir-go/weir/internal/hosttest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // the program's own
	defer stop()
	logging.Disable() // it has a line for each connection that cannot be made
	err := run(ctx, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1) //nolint:gocritic // nothing is left
	}
}

func run(ctx context.Context, args []string) error {
	var s settings
	if isService, err := hosttest.Task(serviceEnv, &s); isService {
		if err != nil {
			return err
		}
		slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
		return service(ctx, s, os.Stdin, os.Stdout)
	}
	if len(args) > 0 {
		switch args[0] {
		case "kill":
			return kill(ctx, args[1:])
		case "cost":
			return cost(ctx, args[1:])
		}
	}
	return fmt.Errorf("found %q; give kill or cost, and -help for their flags", args)
}
