package inspect

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/core/explain"
)

// form is the form that explains a key, and its answer.
type form struct {
	Policy, Tier, Key, Cost string
	Policies                []string // to choose from
	Mistake                 string
	Answer                  string
}

// Bounds of the form.
const (
	explainWithin  = 5 * time.Second
	maxForm        = 64 << 10
	maxSuggestions = 100
)

// form returns the form for a policy, and the names of those that refuse most.
func (h *handler) form(policy string) *form {
	f := &form{Policy: policy, Cost: "1"}
	p := h.current()
	for i := range p.Policies[:min(len(p.Policies), maxSuggestions)] {
		f.Policies = append(f.Policies, p.Policies[i].Name)
	}
	return f
}

// serveExplanation answers the form. The answer does not refresh itself: each asks the store.
func (h *handler) serveExplanation(w http.ResponseWriter, r *http.Request, format string) {
	select {
	case h.asking <- struct{}{}:
		defer func() { <-h.asking }()
	default:
		w.Header().Set("Retry-After", "1")
		h.say(w, http.StatusServiceUnavailable, "others ask the store; try again in a second")
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	f, status := h.form(""), http.StatusOK
	x, err := h.explain(r, f)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		f.Mistake, status = "the store has not answered within "+explainWithin.String()+"; the page says how it is", http.StatusGatewayTimeout
	case err != nil:
		f.Mistake, status = err.Error(), http.StatusBadRequest
	default:
		f.Answer = printable(x.String(), '\n')
	}
	switch {
	case format == formatHTML:
		h.html(w, status, &content{View: &view{Title: "weir: explain a key", Head: h.program}, Form: f})
	case err != nil:
		h.say(w, status, clip(f.Mistake))
	case format == formatJSON:
		h.json(w, x)
	default:
		h.text(w, f.Answer)
	}
}

// explain reads the form into f, and explains its key by the first guard that has the policy.
func (h *handler) explain(r *http.Request, f *form) (explain.Explanation, error) {
	none := explain.Explanation{}
	if err := r.ParseForm(); err != nil {
		return none, fmt.Errorf("the form cannot be read: %w; send policy, key and, if it is not 1, cost", err)
	}
	f.Policy, f.Tier, f.Key = r.PostForm.Get("policy"), r.PostForm.Get("tier"), r.PostForm.Get("key")
	if cost := r.PostForm.Get("cost"); cost != "" {
		f.Cost = cost
	}
	cost, err := strconv.ParseInt(strings.TrimSpace(f.Cost), 10, 64)
	switch {
	case err != nil || cost < 0:
		return none, fmt.Errorf("the cost is %.40q; give a number of units, such as 1", f.Cost)
	case f.Policy == "" || f.Key == "":
		return none, errors.New("the policy or the key is missing; give both, such as policy=api and key=ip=203.0.113.7")
	}
	ctx, cancel := within(r, explainWithin)
	defer cancel()
	for _, g := range h.observer.Guards() {
		if slices.Contains(g.PolicyNames(), f.Policy) {
			return g.ExplainKey(ctx, f.Policy, f.Tier, f.Key, cost)
		}
	}
	return none, fmt.Errorf("no guard that is watched has the policy %.100q; take one of those on the page", f.Policy)
}

// within returns a context that ends after d, and not with the request: the context that Fiber's adaptor gives a request
// must not be waited for while the server shuts down (fasthttp's RequestCtx.Done).
func within(r *http.Request, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.Context()), d)
}
