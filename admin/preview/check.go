package preview

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/weir-go/weir/admin/counts"
	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/internal/inwords"
)

// Draft is a text while somebody types it.
type Draft struct {
	// Policy is the name of the policy, and Text what is typed.
	Policy string
	Text   string
	// Now is the text of the policy to which a tier or a key belongs, "" if there is none or it is not known.
	Now string
	// For is the kind of entry that the text is for.
	For Kind
}

// Kind is a kind of entry.
type Kind uint8

// The kinds of entries.
const (
	ForPolicy Kind = iota // the text of a policy
	ForTier               // that of a tier, which may be "unlimited"
	ForKey                // that of a key, which may be "unlimited" or "blocked"
)

// Checked is a [Draft] explained.
type Checked struct {
	// Words are its bounds. They are nil if it has mistakes, and for "unlimited" and "blocked".
	Words *inwords.Policy `json:"words,omitempty"`
	// Pictures show what one caller gets, one for each period of its limits.
	Pictures []Picture `json:"pictures,omitempty"`
	// Mistakes are the reasons why the text is no policy, or none that the code can use.
	Mistakes []Mistake `json:"mistakes,omitempty"`
}

// Mistake is something wrong in a text.
type Mistake struct {
	// Column is the character at which it begins, from 1 on, or 0 if it is the text as a whole.
	Column int `json:"column,omitempty"`
	// Problem is a sentence with what is wrong and what to write.
	Problem string `json:"problem"`
}

// Check explains a draft, in a millisecond or two. It asks nobody.
func Check(d Draft) Checked {
	like, err := d.like()
	if err != nil {
		return Checked{Mistakes: []Mistake{{Problem: err.Error()}}}
	}
	switch text := strings.TrimSpace(d.Text); {
	case d.For == ForPolicy && text == "": // it is as the code says
		return Checked{}
	case d.For != ForPolicy && text == follow.Unlimited, d.For == ForKey && text == follow.Blocked:
		return Checked{}
	}
	p, err := like.ParseLike(d.Text)
	if err != nil {
		return Checked{Mistakes: mistakes(d.Text, err)}
	}
	if !like.IsZero() {
		if _, err := enforce.FitsTier(like, d.Text); err != nil {
			return Checked{Mistakes: []Mistake{{Problem: counts.Plain(err)}}}
		}
	}
	words := inwords.Of(p)
	return Checked{Words: &words, Pictures: pictures(p)}
}

// like returns the policy from which the text of a tier or a key takes what it leaves out. It is zero if it is not known.
func (d *Draft) like() (core.Policy, error) {
	if d.For == ForPolicy || d.Now == "" {
		return core.Policy{}, nil
	}
	return counts.CodeOf(d.Policy, d.Now)
}

// ofLimit begins what is wrong with a limit.
var ofLimit = regexp.MustCompile(`^limit ([1-9][0-9]*) \(`)

// ofOption begins what is wrong with an option.
var ofOption = map[string]string{"Wait is ": "wait", "Fail is ": "fail", "Processes is ": "fail", "Epoch is ": "epoch"}

// mistakes returns the mistakes in a text that Parse has found, with their places.
func mistakes(text string, err error) (all []Mistake) {
	if unread, ok := errors.AsType[*core.SyntaxError](err); ok {
		_, problem, _ := strings.Cut(err.Error(), fmt.Sprintf("at offset %d, ", unread.Offset))
		return []Mistake{{Column: column(text, unread.Offset), Problem: problem}}
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		m := Mistake{Problem: strings.TrimPrefix(line, fmt.Sprintf("core: policy %q: ", text))}
		if found := ofLimit.FindStringSubmatch(m.Problem); found != nil {
			if n, err := strconv.Atoi(found[1]); err == nil {
				m.Column = limitAt(text, n)
			}
		}
		for begin, word := range ofOption {
			if at := strings.LastIndex(text, word); at >= 0 && strings.HasPrefix(m.Problem, begin) {
				m.Column = column(text, at)
			}
		}
		all = append(all, m)
	}
	return all
}

// limitAt returns the column of the n-th limit of a text, 0 if it has none.
func limitAt(text string, n int) int {
	from := strings.IndexByte(text, ':') + 1
	to := len(text)
	if end := strings.IndexByte(text, ';'); end >= 0 {
		to = end
	}
	limits := strings.Split(text[from:to], ",")
	if n > len(limits) {
		return 0
	}
	for _, before := range limits[:n-1] {
		from += len(before) + 1
	}
	limit := limits[n-1]
	from += len(limit) - len(strings.TrimLeft(limit, " \t\r\n"))
	return column(text, from)
}

// column returns the character at an offset, from 1 on.
func column(text string, offset int) int {
	return utf8.RuneCountInString(text[:min(offset, len(text))]) + 1
}
