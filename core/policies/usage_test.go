package policies_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/stats"
)

func aUsage() *stats.Usage {
	return &stats.Usage{
		For: 90 * time.Second,
		Policies: []stats.PolicyUsage{
			{
				Policy: "api",
				Tiers: []stats.TierUsage{
					{UsageCounts: stats.UsageCounts{Admitted: 90, Refused: 10, Trial: 1, Failed: 2, Local: 3, Waited: 4}},
					{Tier: "pro", UsageCounts: stats.UsageCounts{Admitted: 7}},
				},
				Busiest: stats.TopKeys{For: 600 * time.Second, Keys: []stats.KeyCount{{Key: "user=7", Count: 80, Error: 2}, {Key: "ip=::1", Count: 1}}},
				Refused: stats.TopKeys{For: 60 * time.Second, Keys: []stats.KeyCount{{Key: "user=7", Count: 10}}},
			},
			{Policy: "login"},
		},
		Omitted: 3, KeysOmitted: 4,
	}
}

func TestUsageIsReadBack(t *testing.T) {
	t.Parallel()
	for _, u := range []*stats.Usage{{}, aUsage()} {
		data := policies.EncodeUsage(u)
		require.True(t, json.Valid(data), "%s", data)
		again, err := policies.DecodeUsage(data)
		require.NoError(t, err)
		assert.Equal(t, u, again)
	}
	assert.Equal(t, `{"format":1,"for":90,"policies":[`+
		`["api",[["",90,10,1,2,3,4],["pro",7,0,0,0,0,0]],[600,"user=7",80,2,"ip=::1",1,0],[60,"user=7",10,0]],["login",[],[],[]]],`+
		`"omitted":3,"keysOmitted":4}`, string(policies.EncodeUsage(aUsage())))
}

// TestUsageIsBounded: whatever was counted, it can be read, the counts go before the keys, and the first keys of all
// policies before the second of any; and whatever has no room is counted.
func TestUsageIsBounded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		u := &stats.Usage{For: time.Duration(rapid.Int64().Draw(t, "for"))}
		keys, tiers := 0, rapid.IntRange(0, 20).Draw(t, "tiers")
		for i := range rapid.IntRange(0, 700).Draw(t, "policies") {
			p := stats.PolicyUsage{Policy: fmt.Sprintf("policy-%03d", i)}
			for j := range tiers {
				p.Tiers = append(p.Tiers, stats.TierUsage{Tier: fmt.Sprint("tier", j), UsageCounts: stats.UsageCounts{Admitted: uint64(i), Waited: 1 << 60}})
			}
			for _, top := range []*stats.TopKeys{&p.Busiest, &p.Refused} {
				for k := range []int{0, 1, 49, 50, 51, 60}[i%6] {
					top.Keys = append(top.Keys, stats.KeyCount{Key: strings.Repeat("\x01", i*k%40) + fmt.Sprint(k), Count: 7, Error: 9})
				}
				keys += len(top.Keys)
			}
			u.Policies = append(u.Policies, p)
		}
		data := policies.EncodeUsage(u)
		if len(data) > policies.MaxUsageSize {
			t.Fatalf("%d bytes", len(data))
		}
		again, err := policies.DecodeUsage(data)
		if err != nil {
			t.Fatal(err)
		}
		if len(again.Policies)+again.Omitted != len(u.Policies) {
			t.Fatalf("%d policies and %d omitted, of %d", len(again.Policies), again.Omitted, len(u.Policies))
		}
		least, there := policies.MaxUsageKeys, 0
		for i, p := range again.Policies {
			if p.Policy != u.Policies[i].Policy || len(p.Tiers) != tiers {
				t.Fatalf("%s has %d tiers, of %d", p.Policy, len(p.Tiers), tiers)
			}
			for list, top := range []stats.TopKeys{p.Busiest, p.Refused} {
				all := []stats.TopKeys{u.Policies[i].Busiest, u.Policies[i].Refused}[list]
				there += len(top.Keys)
				if len(top.Keys) < min(len(all.Keys), policies.MaxUsageKeys) {
					least = min(least, len(top.Keys))
				}
				for k := range top.Keys {
					if top.Keys[k].Key != all.Keys[k].Key {
						t.Fatalf("%s has %q in the place of %q", p.Policy, top.Keys[k].Key, all.Keys[k].Key)
					}
				}
			}
		}
		of := 0
		for i := range again.Policies {
			of += len(u.Policies[i].Busiest.Keys) + len(u.Policies[i].Refused.Keys)
		}
		if there+again.KeysOmitted != of {
			t.Fatalf("%d keys and %d omitted, of %d", there, again.KeysOmitted, of)
		}
		for _, p := range again.Policies {
			if n := max(len(p.Busiest.Keys), len(p.Refused.Keys)); n > least+1 {
				t.Fatalf("%s has %d keys where another has %d of more", p.Policy, n, least)
			}
		}
	})
}

// Anybody who may write a usage can write anything.
func TestDecodeUsageRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``:                                     "ends within a value",
		`{}`:                                   `a usage has no field "format"`,
		`{"format":2,"policies":[]}`:           "format 2 is of a later version",
		`{"format":1}`:                         `a usage has no field "policies"`,
		`{"format":1,"policies":[],"rules":1}`: "rules: there is no such field",
		`{"format":1,"policies":[],"for":-1}`:  "for: found -1",
		`{"format":1,"policies":[],"for":9007199254740992}`:                                                         "seconds: give at most 4294967296",
		`{"format":1,"policies":[["a",[],[]]]}`:                                                                     "policies[0]: found a list of 3",
		`{"format":1,"policies":[[7,[],[],[]]]}`:                                                                    "policies[0][0]: found the number 7: give a text",
		`{"format":1,"policies":[["a",[["",1,2,3]],[],[]]]}`:                                                        "policies[0][1][0]: found a list of 4",
		`{"format":1,"policies":[["a",[["",1,2,3,4,5,-6]],[],[]]]}`:                                                 "found -6",
		`{"format":1,"policies":[["a",[["",1,2,3,4,5,9007199254740993]],[],[]]]}`:                                   "give a number from 0 to 2^53",
		`{"format":1,"policies":[["a",[["",1,2,3,4,5,6],["",1,2,3,4,5,6]],[],[]]]}`:                                 `the tier "" stands here twice`,
		`{"format":1,"policies":[["a",[],[],[]],["a",[],[],[]]]}`:                                                   `the policy "a" stands here twice`,
		`{"format":1,"policies":[["a",[],[1,"k",2],[]]]}`:                                                           "policies[0][2]: found a list of 3",
		`{"format":1,"policies":[["a",[],[1,"k",2,3],[]]]}`:                                                         "the error 3 is more than the count 2",
		`{"format":1,"policies":[["a",[],[1` + strings.Repeat(`,"k",2,1`, 51) + `],[]]]}`:                           "at most 50 keys",
		`{"format":1,"policies":[["a",[],[1,"` + strings.Repeat("x", 1025) + `",2,1],[]]]}`:                         "the text has 1025 bytes",
		`{"format":1,"policies":["` + strings.Repeat("x", 64<<10) + `"]}`:                                           "give at most 65536",
		`{"format":1,"policies":[["a",[],[1,{},2,1],[]]]}`:                                                          "found an object: give a text",
		`{"format":1,"policies":[["a",[` + strings.Repeat(`["",1,2,3,4,5,6],`, 3200) + `["",1,2,3,4,5,6]],[],[]]]}`: "more values than",
	} {
		u, err := policies.DecodeUsage([]byte(text))
		assert.Nil(t, u)
		assert.ErrorContains(t, err, want, "%.200s", text)
	}
}

func FuzzUsage(f *testing.F) {
	f.Add(policies.EncodeUsage(aUsage()))
	f.Add([]byte(`{"format":1,"policies":[["a",[],[],[]]],"omitted":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		u, err := policies.DecodeUsage(data)
		if err != nil {
			return
		}
		again, err := policies.DecodeUsage(policies.EncodeUsage(u))
		if err != nil {
			t.Fatal(err)
		}
		if string(policies.EncodeUsage(again)) != string(policies.EncodeUsage(u)) {
			t.Fatalf("%+v, then %+v", u, again)
		}
	})
}
