// Command plain serves one handler, for the sake of the size of its executable.
package main

import (
	"fmt"
	"net/http"
)

func main() {
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello") })
	fmt.Println(http.ListenAndServe("127.0.0.1:0", nil))
}
