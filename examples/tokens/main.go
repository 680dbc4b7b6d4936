// Tokens limits what each account uses of a language model, in tokens: an estimate is taken before, and what was really
// used is charged after the answer. It sends itself a few prompts:
//
//	go run ./examples/tokens
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
)

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// chat stands for a call of the model, which says at its end how many tokens it took.
func chat(w http.ResponseWriter, r *http.Request) {
	var tokens int64
	_, _ = fmt.Sscan(r.URL.Query().Get("tokens"), &tokens)
	guard.Report(r.Context(), tokens)
	fmt.Fprintf(w, "an answer of %d tokens", tokens)
}

func run(out io.Writer) error {
	g, err := guard.New(guard.Config{Rule: guard.Rule{
		Policy: "tokens: 10000/1h token-bucket debt 5000",
		Key:    keyfunc.Header("X-Account"), // where a gateway has checked it
		Cost:   func(keyfunc.Request) int64 { return 1000 },
		Settle: guard.Reported,
	}})
	if err != nil {
		return err
	}
	app := nethttp.Limit(g)(http.HandlerFunc(chat))
	for _, tokens := range []int{200, 9000, 4000, 1} {
		r := httptest.NewRequest(http.MethodPost, fmt.Sprintf("/chat?tokens=%d", tokens), http.NoBody)
		r.Header.Set("X-Account", "acme")
		w := httptest.NewRecorder()
		app.ServeHTTP(w, r)
		fmt.Fprintf(out, "%5d tokens: %d, %s left besides the estimate\n", tokens, w.Code, w.Header().Get("X-RateLimit-Remaining"))
	}
	return nil
}
