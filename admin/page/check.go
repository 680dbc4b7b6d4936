package page

import (
	"strings"

	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/internal/adminapi"
)

// saysBody is the explanation of a draft, beside the editor and while somebody types.
type saysBody struct {
	Text     string
	Words    []string
	Mistakes []mistake
	Pictures []manage.Picture
	Trial    bool
	Empty    bool
	Gap      string // why it is not known what it says
}

// mistake is one of a draft, with the place in its text if it has one.
type mistake struct {
	adminapi.Mistake
	Before, At, After string // the text around its column, "" if it has none
}

// check answers what a draft says. The answer to a wrong one is 200 as well: people type it one character at a time.
func (s *server) check(v *visit) error {
	if _, err := s.Manager.Settings(v.r.Context(), v.who, v.app); err != nil {
		return err
	}
	return s.part(v, "policy", "says", s.saysOf(v, typed(v.r)))
}

func (s *server) saysOf(v *visit, d draft) *saysBody {
	p, wrong := d.policy()
	says := &saysBody{Text: d.Text, Empty: d.Text == "" && len(p.Tiers)+len(p.Keys) == 0}
	if says.Empty && len(wrong) == 0 {
		return says
	}
	checked, err := s.Manager.Check(v.r.Context(), v.who, p)
	if err != nil {
		says.Gap = s.gap(v, err)
		checked = &manage.Checked{}
	}
	says.Words, says.Pictures, says.Trial = checked.Words, checked.Pictures, checked.Trial
	for _, m := range append(wrong, checked.Mistakes...) {
		says.Mistakes = append(says.Mistakes, mistakeIn(d.Text, m))
	}
	if len(says.Mistakes) > 0 {
		says.Words, says.Pictures = nil, nil
	}
	return says
}

// mistakeIn returns a mistake with the text around it, if it is one of the text and has a place there.
func mistakeIn(text string, m adminapi.Mistake) mistake {
	out := mistake{Mistake: m}
	runes := []rune(text)
	if m.Location != "text" || m.Column < 1 || m.Column > len(runes)+1 {
		return out
	}
	from := m.Column - 1
	to := from
	for to < len(runes) && !strings.ContainsRune(" ,;/", runes[to]) { // the rest of the word
		to++
	}
	if to == from {
		to = min(from+1, len(runes))
	}
	out.Before, out.At, out.After = string(runes[:from]), string(runes[from:to]), string(runes[to:])
	if out.At == "" {
		out.At = " " // something is missing at the end
	}
	return out
}
