package core_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/core"
)

func TestParseLike(t *testing.T) {
	for _, c := range []struct{ text, like, want string }{
		{"9/1m", "login: 5/1m; wait 2s; fail closed; shadow; epoch 3", "login: 9/1m; wait 2s; fail closed; shadow; epoch 3"},
		{"other: 9/1m", "login: 5/1m; shadow", "other: 9/1m; shadow"},
		{"9/1m", "5/1m", "9/1m"},
		{"9/1m; shadow off", "5/1m; shadow", "9/1m"},
		{"9/1m; shadow", "5/1m; shadow", "9/1m; shadow"},
		{"9/1m; shadow", "5/1m", "9/1m; shadow"},
		{"9/1m; epoch 0", "5/1m; epoch 3", "9/1m"},
		{"9/1m; epoch 4", "5/1m; epoch 3", "9/1m; epoch 4"},
		{"9/1m; wait 0s", "5/1m; wait 2s", "9/1m"},
		{"9/1m; wait 1s", "5/1m; wait 2s", "9/1m; wait 1s"},
		{"9/1m; fail local", "5/1m; fail closed", "9/1m"},
		{"9/1m; fail open", "5/1m; fail local 1/4", "9/1m; fail open"},
		{"9/1m", "5/1m; fail local 1/4", "9/1m; fail local 1/4"},
		{"9/1m; fail local", "5/1m; fail local 1/4", "9/1m; fail local 1/4"},
		{"9/1m; fail local 1/2", "5/1m; fail local 1/4", "9/1m; fail local 1/2"},
		{"9/1m; fail local 1/2", "5/1m; fail open", "9/1m; fail local 1/2"},
		{"9/1m; fail closed", "5/1m; fail open", "9/1m; fail closed"},
		{"9/1m; fail local 1/2", "", "9/1m; fail local 1/2"},
	} {
		var like core.Policy
		if c.like != "" {
			like = core.MustParse(c.like)
		}
		p, err := like.ParseLike(c.text)
		require.NoError(t, err, c.text)
		assert.Equal(t, c.want, p.String(), "%q like %q", c.text, c.like)
	}
	_, err := core.MustParse("5/1s; wait 1s").ParseLike("5/1s fixed-window")
	require.EqualError(t, err, `core: policy "5/1s fixed-window": limit 1 (5/1s fixed-window): Wait is 1s, but "fixed-window" cannot reserve; use "gcra" or "token-bucket"`)
	_, err = core.MustParse("5/1s; wait 1s").ParseLike("5/1")
	var syntax *core.SyntaxError
	require.ErrorAs(t, err, &syntax)
}

// Every option that is left out is that of the other policy, and every option that is written is as it is written.
func TestParseLikeEveryOption(t *testing.T) {
	options := rapid.Custom(func(t *rapid.T) core.PolicyOptions {
		o := core.PolicyOptions{
			Wait:   time.Duration(rapid.IntRange(0, 3).Draw(t, "wait")) * time.Second,
			Fail:   rapid.SampledFrom([]core.Failure{core.FailLocal, core.FailOpen, core.FailClosed}).Draw(t, "fail"),
			Shadow: rapid.Bool().Draw(t, "shadow"), Epoch: rapid.IntRange(0, 2).Draw(t, "epoch"),
		}
		if o.Fail == core.FailLocal {
			o.Processes = rapid.IntRange(0, 3).Draw(t, "processes")
		}
		return o
	})
	rapid.Check(t, func(t *rapid.T) {
		own, other := options.Draw(t, "written"), options.Draw(t, "like")
		want, text := other, "9/1m"
		write := func(what string) bool { return rapid.Bool().Draw(t, what+" is written") }
		if write("shadow") {
			want.Shadow, text = own.Shadow, text+map[bool]string{true: "; shadow", false: "; shadow off"}[own.Shadow]
		}
		if write("wait") {
			want.Wait, text = own.Wait, fmt.Sprintf("%s; wait %ds", text, own.Wait/time.Second)
		}
		if write("fail") {
			before := want
			want.Fail, want.Processes, text = own.Fail, own.Processes, fmt.Sprintf("%s; fail %v", text, own.Fail)
			if own.Processes > 0 {
				text += fmt.Sprintf(" 1/%d", own.Processes)
			} else if own.Fail == core.FailLocal && before.Fail == core.FailLocal {
				want.Processes = before.Processes
			}
		}
		if write("epoch") {
			want.Epoch, text = own.Epoch, fmt.Sprintf("%s; epoch %d", text, own.Epoch)
		}
		like, err := core.NewPolicy("like", other, core.PerMinute(5))
		require.NoError(t, err)
		got, err := like.ParseLike(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got.Options(), "%s like %v", text, like)
		require.Equal(t, "like", got.Name())
		again, err := core.Parse(got.String())
		require.NoError(t, err)
		requireSamePolicy(t, got, again)
	})
}

func FuzzParseLike(f *testing.F) {
	for _, text := range []string{"9/1m", "9/1m; shadow off", "x: 9/1m; wait 0s; fail local", "9/1s fixed-window", "5 concurrent; epoch 7", ";", "9/1m; fail local 1/2"} {
		for _, like := range []string{"5/1m", "login: 5/1m; wait 2s; fail closed; shadow; epoch 3", "5/1m; fail local 1/4", "2 concurrent"} {
			f.Add(text, like)
		}
	}
	f.Fuzz(func(t *testing.T, text, like string) {
		other, err := core.Parse(like)
		if err != nil {
			return
		}
		p, err := other.ParseLike(text)
		if err != nil {
			require.True(t, p.IsZero())
			return
		}
		again, err := core.Parse(p.String())
		require.NoError(t, err)
		requireSamePolicy(t, p, again)
	})
}
