// Websocket serves sockets, at most two at once for each address. It opens three, and when one has ended another:
//
//	cd recipes && go run ./websocket
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/coder/websocket"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// echo sends back what it gets. The permit is the request's: it comes back when the handler returns. If it is lost
// before, because a store was gone for longer than its lease, the context ends, and with it the socket.
func echo(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // it has answered
	}
	defer conn.CloseNow()
	for {
		kind, message, err := conn.Read(r.Context())
		if err != nil || conn.Write(r.Context(), kind, message) != nil {
			return
		}
	}
}

func run(ctx context.Context, out io.Writer) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /echo", echo)
	server := httptest.NewServer(nethttp.Limit(guard.Must("sockets: 2 concurrent lease 30s", keyfunc.IP()))(mux))
	defer server.Close()

	var conns []*websocket.Conn
	defer func() {
		for _, conn := range conns {
			conn.CloseNow()
		}
	}()
	for i := range 3 {
		conn, res, err := websocket.Dial(ctx, server.URL+"/echo", nil)
		if res == nil {
			return err
		}
		fmt.Fprintf(out, "socket %d: %s\n", i+1, res.Status)
		if err == nil {
			conns = append(conns, conn)
		}
	}
	if err := conns[0].Close(websocket.StatusNormalClosure, ""); err != nil {
		return err
	}
	for { // the server notices a moment later
		conn, res, err := websocket.Dial(ctx, server.URL+"/echo", nil)
		if err == nil {
			conns = append(conns, conn)
			fmt.Fprintln(out, "when one has ended:", res.Status)
			return nil
		} else if res == nil {
			return err
		}
	}
}
