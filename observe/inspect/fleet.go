package inspect

import (
	"fmt"
	"net/http"
	"time"

	"github.com/weir-go/weir/observe"
)

// What is asked for of the whole fleet.
const (
	fleetLast   = 10 * time.Minute
	fleetWithin = 3 * time.Second
)

// fleet has the worst callers of all processes, as its JSON has them.
type fleet struct {
	At    time.Time `json:"at"`
	Worst []worst   `json:"worst"`
}

// serveFleet shows the worst callers of the whole fleet, of the policies that refuse most here, or of the one that is
// given. Each time the boards are asked, so it does not refresh itself.
func (h *handler) serveFleet(w http.ResponseWriter, r *http.Request, format, policy string) {
	boards := h.observer.Boards()
	if boards == nil {
		h.say(w, http.StatusNotFound, "this program does not share its worst callers; call Observer.Share")
		return
	}
	select {
	case h.asking <- struct{}{}:
		defer func() { <-h.asking }()
	default:
		w.Header().Set("Retry-After", "1")
		h.say(w, http.StatusServiceUnavailable, "others ask the store; try again in a second")
		return
	}
	names := []string{policy}
	if policy == "" {
		names = nil
		p := h.current()
		for i := range p.Policies[:min(len(p.Policies), maxWorstPolicies)] {
			names = append(names, p.Policies[i].Name)
		}
	}
	ctx, cancel := within(r, fleetWithin)
	defer cancel()
	f := &fleet{At: time.Now().Round(0), Worst: []worst{}}
	for _, name := range names {
		callers, rest, err := observe.FleetWorst(ctx, boards, name, fleetLast, 2*maxCallers)
		if err != nil {
			h.say(w, http.StatusServiceUnavailable, clip(fmt.Sprintf("the worst callers of the fleet cannot be read: %v", err)))
			return
		}
		if len(callers) > 0 {
			f.Worst = append(f.Worst, worst{Policy: name, Callers: h.callers(callers), Rest: rest})
		}
	}
	v := &view{Title: "weir: worst callers of the fleet", Head: h.program, Well: true, Verdict: "Worst callers of the whole fleet", Sections: []section{f.section()}}
	switch format {
	case formatJSON:
		h.json(w, f)
	case formatHTML:
		h.html(w, http.StatusOK, &content{View: v, Back: true})
	default:
		h.text(w, v.text())
	}
}

// callers returns callers as the page shows them.
func (h *handler) callers(all []observe.Caller) []caller {
	out := make([]caller, len(all))
	for i, c := range all {
		out[i] = caller{h.masker.key(c.Key), c.Count - c.Error, c.Count, c.Since.Round(0)}
	}
	return out
}

func (f *fleet) section() section {
	s := section{
		Title: "The last ten minutes", Head: worstHead, Numbers: columns(2, 3),
		Notes: []string{"What a process has counted in the last ten seconds is not there yet."},
	}
	for _, w := range f.Worst {
		s.Rows = append(s.Rows, w.rows(f.At)...)
		s.Rows = append(s.Rows, cells("", "any other", "", number(w.Rest), ""))
	}
	if len(s.Rows) == 0 {
		s.Notes = append(s.Notes, "Nobody was refused lately.")
	}
	return s
}
