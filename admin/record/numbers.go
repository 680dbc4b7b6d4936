package record

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/policies"
)

// numbers returns an error if a text that an operator writes changes more than numbers and "shadow": of the policy, or of
// a key of it. What counts in another way, or from another epoch on, is for owners.
func (w *writer) numbers(name, key, text string, before *policies.Policy) error {
	if key != "" && (text == "" || text == follow.Blocked) {
		return nil
	}
	if text == "" || text == follow.Unlimited {
		return fmt.Errorf("found %q; give numbers", text)
	}
	var texts []string
	read := func(now core.Policy) (core.Policy, error) { return core.Parse(text) }
	if before != nil && before.Text != "" {
		texts = []string{before.Text}
	} else {
		for _, rule := range w.change.Announced {
			if rule.Policy == name && len(texts) < maxCodes && !slices.Contains(texts, rule.Code) {
				texts = append(texts, rule.Code)
			}
		}
		read = func(now core.Policy) (core.Policy, error) { return now.ParseLike(text) }
	}
	if key != "" {
		read = func(now core.Policy) (core.Policy, error) { return now.ParseLike(text) }
	} else if len(texts) == 0 {
		return errors.New("no process says what its code has, so that it is not known what are other numbers of the same policy")
	}
	for _, was := range texts {
		now, err := core.Parse(was)
		if err != nil {
			continue // what a service says of itself is no policy
		}
		now = now.Named(name)
		p, err := read(now)
		if err != nil {
			return err
		}
		if err := onlyNumbers(now, p.Named(name), key != ""); err != nil {
			return err
		}
	}
	return nil
}

// onlyNumbers returns an error if two policies differ in more than numbers and "shadow", or do not share their counts.
// The numbers of a key may fill their bucket in another time than those of the policy.
func onlyNumbers(before, after core.Policy, ofKey bool) error {
	was, is := before.Options(), after.Options()
	if !ofKey {
		is.Shadow = was.Shadow
	}
	is.Processes = was.Processes
	switch {
	case sameForm(before, after) != nil:
		return errors.New("it has other algorithms; an operator changes numbers alone")
	case !ofKey && shapes(before) != shapes(after):
		return errors.New("everybody's counts would begin afresh; an operator keeps the periods, and the burst in proportion to the rate")
	case was != is:
		return fmt.Errorf("%q differs from %q in other options; an operator changes numbers and \"shadow\"", after, before)
	}
	return nil
}
