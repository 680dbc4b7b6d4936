// Command limited is plain with a limit, for the sake of the size of its executable.
package main

import (
	"fmt"
	"net/http"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
)

func main() {
	g := guard.Must("100/1m", keyfunc.IP())
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello") })
	fmt.Println(http.ListenAndServe("127.0.0.1:0", nethttp.Limit(g)(http.DefaultServeMux)))
}
