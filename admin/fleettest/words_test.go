package fleettest

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/policies/redissource"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/adminapi"
	"github.com/weir-go/weir/keyfunc"
)

// TestSixWords brings each word about as it comes about in a fleet, and reads it where an operator does: by "weir services".
func TestSixWords(t *testing.T) {
	f := startFleet(t)
	store, err := redisstore.New(f.rdb, redisstore.Options{Prefix: "pay", Deadline: patience})
	require.NoError(t, err)
	source := f.source("pay", redissource.Options{Every: 200 * time.Millisecond, Name: "service"})
	var rules []guard.Rule
	for _, name := range []string{"alone", "numbers", "tried", "other"} {
		rules = append(rules, guard.Rule{Policy: name + ": 1000/1h", Key: keyfunc.IP()})
	}
	g, err := guard.New(guard.Config{Store: store, Source: source, Rules: rules})
	require.NoError(t, err)
	url := frameworks["nethttp"](t, g)
	job, err := enforce.New(store, core.MustParse("mail: 1000/1h"), enforce.Options{Source: source})
	require.NoError(t, err)

	// words waits until the process obeys as expected, and returns what it said.
	words := func(want map[string]policies.Meaning) (p adminapi.Process) {
		t.Helper()
		require.Eventually(t, func() bool {
			var services adminapi.Services
			out, err := f.weir(t, "services", "-json", "pay")
			if err != nil || json.Unmarshal(out, &services) != nil || len(services.Processes) != 1 {
				return false
			}
			p = services.Processes[0]
			for _, r := range p.Rules {
				if r.Meaning != want[r.Policy] {
					return false
				}
			}
			return len(p.Rules) == len(want)
		}, patience, 10*time.Millisecond, "expected %v", want)
		return p
	}
	all := func(m policies.Meaning) map[string]policies.Meaning {
		return map[string]policies.Meaning{"alone": m, "numbers": m, "tried": m, "other": m, "mail": m}
	}
	// obeyed holds that requests go by the numbers of the fleet, whatever the word.
	obeyed := func() {
		t.Helper()
		status, _, err := get(t.Context(), url)
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, status)
		assert.Equal(t, "mail: 5/1h", job.Policy().String())
	}
	words(all(policies.Code))

	f.put(t, "pay", "mail", policies.Policy{Text: "5/1h"})
	f.put(t, "pay", "numbers", policies.Policy{Text: "500/1h"})
	f.put(t, "pay", "tried", policies.Policy{Text: "1/1h; shadow"})
	_, err = f.admin.Put(t.Context(), "pay", "other", policies.Policy{Text: "500/1h sliding-log"}, writeAnyway)
	require.Equal(t, http.StatusUnprocessableEntity, adminapi.StatusOf(err), "the door: %v", err)
	forced := writeAnyway
	forced.Force = true
	written, err := f.admin.Put(t.Context(), "pay", "other", policies.Policy{Text: "500/1h sliding-log"}, forced)
	require.NoError(t, err)
	assert.NotEmpty(t, written.CannotUse)
	mixed := map[string]policies.Meaning{
		"alone": policies.Code, "numbers": policies.Fleet, "tried": policies.Trial, "other": policies.Unusable, "mail": policies.Fleet,
	}
	p := words(mixed)
	obeyed()
	for _, r := range p.Rules {
		assert.Equal(t, r.Policy == "other", r.Why != "", "%s: %s", r.Policy, r.Why)
	}

	// Deleted by the fleet.
	_, err = f.admin.Delete(t.Context(), "pay", "numbers", writeAnyway)
	require.NoError(t, err)
	mixed["numbers"] = policies.Code
	words(mixed)
	obeyed()

	// The document of a later version of weir, whose admin wrote to this Redis.
	head, err := f.admin.Services(t.Context(), "pay")
	require.NoError(t, err)
	f.killAdmins()
	later := []byte(`{"format":2}`)
	require.NoError(t, f.rdb.HSet(t.Context(), redissource.Key("pay"),
		redissource.FieldGeneration, head.Generation, redissource.FieldRevision, head.Revision+1,
		redissource.FieldDigest, policies.Digest(later), redissource.FieldDocument, later).Err())
	f.startAdmin()
	p = words(all(policies.Unread))
	assert.Contains(t, p.Why, "format")
	obeyed()
	apps, err := f.admin.Apps(t.Context())
	require.NoError(t, err)
	require.Len(t, apps, 1)
	assert.NotEmpty(t, apps[0].Alarm)
	_, err = f.admin.Adopt(t.Context(), "pay", writeAnyway)
	require.NoError(t, err)
	words(mixed)
	obeyed()

	// A record and a Redis that were made anew: what they say is earlier than what the process has.
	f.killAdmins()
	files, err := filepath.Glob(filepath.Join(f.dir, "weir.db*"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, name := range files {
		require.NoError(t, os.Remove(name))
	}
	require.NoError(t, f.rdb.FlushAll(t.Context()).Err())
	f.newToken()
	f.startAdmin()
	f.put(t, "pay", "mail", policies.Policy{Text: "7/1h"})
	p = words(all(policies.Stale))
	assert.True(t, p.Ahead)
	assert.Contains(t, p.Why, "adopt")
	obeyed()
	_, err = f.admin.Adopt(t.Context(), "pay", writeAnyway)
	require.NoError(t, err)
	words(map[string]policies.Meaning{
		"alone": policies.Code, "numbers": policies.Code, "tried": policies.Code, "other": policies.Code, "mail": policies.Fleet,
	})
	assert.Equal(t, "mail: 7/1h", job.Policy().String())
}
