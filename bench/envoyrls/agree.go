package main

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weir-go/weir/internal/redistest"
)

var (
	requests = flag.Int("requests", 10_000, "agree: the random requests")
	perTree  = flag.Int("per-tree", 50, "agree: the requests of each random configuration")
	seed     = flag.Uint64("seed", 1, "agree: what chance begins with")
	show     = flag.Int("show", 2, "agree: the differences of each kind that are printed, at least")
)

// same are settings with which weir does what the other service does: it charges all that is refused, and does not count
// by itself if this machine has no time for Redis.
var same = []string{"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=false", "WEIR_DEADLINE=2s"}

// rounds are further settings of both services, in turns.
var rounds = [][]string{
	nil,
	{"LIMIT_RESPONSE_HEADERS_ENABLED=true", "RESPONSE_DYNAMIC_METADATA=true"},
	{"SHADOW_MODE=true", "LIMIT_RESPONSE_HEADERS_ENABLED=true"},
	{"QUOTA_MODE=true", "RESPONSE_DYNAMIC_METADATA=true"},
}

// agree asks both services the same, and prints how often and in what they differ.
func agree(tb testing.TB) {
	all := &tally{kinds: map[string]int{}}
	trees := (*requests/len(rounds) + *perTree - 1) / *perTree
	for i, env := range rounds {
		all.round(tb, rand.New(rand.NewPCG(*seed, uint64(i))), trees, env) //nolint:gosec // chance that can be had again
	}
	fmt.Printf("%d of %d requests were answered alike, those of %d trees", all.requests-all.different, all.requests, all.trees)
	fmt.Printf(" (%d over the limit, %d errors; %d trees were left out, because a window ended meanwhile)\n", all.over, all.errors, all.leftOut)
	for _, kind := range slices.Sorted(maps.Keys(all.kinds)) {
		fmt.Printf("%8d differ first in %s\n", all.kinds[kind], kind)
	}
}

type tally struct {
	requests, trees, leftOut, over, errors, different int
	kinds                                             map[string]int // of differences
}

// round asks the services with other settings, each tree in a domain of its own.
func (t *tally) round(tb testing.TB, r *rand.Rand, trees int, env []string) {
	redis := redistest.Single(tb)
	domains := make([]domain, 2*trees) // some may be left out
	texts := map[string]string{}
	for i := range domains {
		domains[i] = domain{Domain: fmt.Sprintf("tree%d", i), Descriptors: randomTree(r, 0)}
		text, err := yaml.Marshal(domains[i])
		if err != nil {
			tb.Fatal(err)
		}
		texts[domains[i].Domain+".yaml"] = string(text)
	}
	a := start(tb, "theirs", theirs(tb), redis, texts, append([]string{"CACHE_KEY_PREFIX=theirs"}, env...)...)
	b := start(tb, "weir's", weirs(tb), redis, texts, slices.Concat([]string{"CACHE_KEY_PREFIX=weirs"}, same, env)...)
	for _, d := range domains {
		if trees == 0 {
			return
		}
		if t.tree(tb, r, d, a, b) {
			trees--
		}
	}
	tb.Fatal("too many trees were left out: the machine is too busy")
}

// tree asks the services for one tree, and reports whether no window ended between the answer of one and that of the
// other: all windows begin with a second.
func (t *tally) tree(tb testing.TB, r *rand.Rand, d domain, a, b *service) bool {
	now := *t
	now.kinds = maps.Clone(t.kinds)
	shown := ""
	for range *perTree {
		req := randomRequest(r, d)
		for time.Now().Nanosecond() > int(950*time.Millisecond) || time.Now().Nanosecond() < int(2*time.Millisecond) {
			time.Sleep(time.Millisecond) //nolint:forbidigo // real windows
		}
		before := time.Now().Unix()
		theirs, theirErr := a.client.ShouldRateLimit(tb.Context(), req)
		weirs, weirErr := b.client.ShouldRateLimit(tb.Context(), req)
		if time.Now().Unix() != before {
			t.leftOut++
			return false
		}
		now.requests++
		if theirErr != nil {
			now.errors++
		}
		if theirs.GetOverallCode() == rlspb.RateLimitResponse_OVER_LIMIT {
			now.over++
		}
		if kind := difference(theirs, theirErr, weirs, weirErr); kind != "" {
			now.different++
			now.kinds[kind]++
			if shown == "" && t.kinds[kind] < *show {
				shown = fmt.Sprintf("a difference in %s, request %d of\n%s%s\ntheirs: %s\nweir's: %s\n",
					kind, now.requests-t.requests, text(d.Descriptors, "  "), asked(req), answer(theirs, theirErr, kind), answer(weirs, weirErr, kind))
			}
		}
	}
	now.trees++
	*t = now
	if shown != "" {
		fmt.Println(shown)
	}
	return true
}

// difference returns the first in which the answers differ, or "".
func difference(a *rlspb.RateLimitResponse, aErr error, b *rlspb.RateLimitResponse, bErr error) string {
	switch {
	case (aErr == nil) != (bErr == nil):
		return "errors"
	case aErr != nil:
		return ""
	case a.GetOverallCode() != b.GetOverallCode():
		return "the verdict"
	case len(a.GetStatuses()) != len(b.GetStatuses()):
		return "the number of statuses"
	}
	for i, s := range a.GetStatuses() {
		if kind := statusDifference(s, b.GetStatuses()[i]); kind != "" {
			return kind
		}
	}
	for _, h := range a.GetResponseHeadersToAdd() { // weir's has more of them
		if !slices.ContainsFunc(b.GetResponseHeadersToAdd(), func(o *corepb.HeaderValue) bool { return proto.Equal(o, h) }) {
			return "headers"
		}
	}
	if plain(a.GetDynamicMetadata()) != plain(b.GetDynamicMetadata()) {
		return "metadata"
	}
	return ""
}

// plain returns metadata as a text. It has limits in the format of protobuf for people, in which each program writes other
// spaces.
func plain(metadata *structpb.Struct) string {
	return strings.Join(strings.Fields(metadata.String()), " ")
}

const slack = 50 * time.Millisecond

func statusDifference(a, b *rlspb.RateLimitResponse_DescriptorStatus) string {
	// Theirs is in whole seconds, and not said of a limit in quota mode that is exceeded. What weir answers from memory
	// has the time of Redis as exactly as a round trip told it.
	reset := a.GetDurationUntilReset().AsDuration() - b.GetDurationUntilReset().AsDuration()
	switch {
	case a.GetCode() != b.GetCode():
		return "a status"
	case !proto.Equal(a.GetCurrentLimit(), b.GetCurrentLimit()):
		return "a limit"
	case a.GetLimitRemaining() != b.GetLimitRemaining():
		return "what remains"
	case a.GetDurationUntilReset() != nil && (reset < -slack || reset >= time.Second):
		return "the time until a reset"
	}
	return ""
}

// answer returns an answer, or an error, in lines, with what they may differ in.
func answer(res *rlspb.RateLimitResponse, err error, kind string) string {
	if err != nil {
		return status.Convert(err).String()
	}
	var b strings.Builder
	b.WriteString(res.GetOverallCode().String())
	for _, s := range res.GetStatuses() {
		fmt.Fprintf(&b, "\n  %s, %d left", s.GetCode(), s.GetLimitRemaining())
		if l := s.GetCurrentLimit(); l != nil {
			fmt.Fprintf(&b, " of %d a %s %s", l.GetRequestsPerUnit(), l.GetUnit(), l.GetName())
		}
		if d := s.GetDurationUntilReset(); d != nil {
			fmt.Fprintf(&b, ", reset in %v", d.AsDuration())
		}
	}
	for _, h := range res.GetResponseHeadersToAdd() {
		fmt.Fprintf(&b, "\n  %s: %s", h.GetKey(), h.GetValue())
	}
	if kind == "metadata" {
		b.WriteString("\n  " + plain(res.GetDynamicMetadata()))
	}
	return b.String()
}
