package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

// worse restores a backup of the record, or serves a copy of it beside it.
func (k *killing) worse() string {
	if k.random.IntN(2) == 0 {
		k.backup()
		return "a backup restored"
	}
	k.copied()
	return "a copy served"
}

// The files of a database, of which the last is made anew.
var suffixes = []string{"", "-wal", "-shm"}

// save copies the files of a database while nobody writes.
func save(tb testing.TB, from, to string) {
	for _, suffix := range suffixes[:2] {
		data, err := os.ReadFile(from + suffix)
		if errors.Is(err, fs.ErrNotExist) {
			remove(tb, to+suffix)
			continue
		}
		if err == nil {
			err = os.WriteFile(to+suffix, data, 0o600)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
}

func remove(tb testing.TB, file string) {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		tb.Fatal(err)
	}
}

// put writes a policy of each app, whatever there is.
func (k *killing) put(s *server, text string) {
	for _, app := range apps {
		if _, err := s.Put(k.ctx, app, names[0], policies.Policy{Text: text}, adminapi.Write{Reason: "a test"}); err != nil {
			k.Fatal(err)
		}
		k.ledger.mu.Lock()
		key := [2]string{app, names[0]}
		k.ledger.maybe[key] = append(k.ledger.maybe[key], text)
		k.ledger.mu.Unlock()
	}
}

// backup puts the record back to what it was before a few changes that all services have.
func (k *killing) backup() {
	k.settle()
	latest := int64(0)
	for _, f := range k.followers {
		latest = max(latest, f.seen.Version.Revision)
	}
	for _, s := range k.servers {
		s.kill()
	}
	saved := filepath.Join(k.TempDir(), "saved.db")
	save(k, k.file, saved)
	k.startServers()
	stop := k.people()
	pause(k.ctx, k.some()/4)
	stop()
	k.put(k.servers[0], "7777/1h")
	k.settle()
	k.lose(saved, latest)
}

func (k *killing) startServers() {
	for _, s := range k.servers {
		s.start(k)
	}
}

// lose restores what was saved, sees that all apps stop, and adopts them.
func (k *killing) lose(saved string, latest int64) {
	before := make([]report, len(k.followers))
	for i, f := range k.followers {
		before[i] = f.seen
	}
	for _, s := range k.servers {
		s.kill()
	}
	for _, suffix := range suffixes {
		remove(k, k.file+suffix)
	}
	save(k, saved, k.file)
	k.ledger.forget(latest)
	for _, s := range k.servers {
		s.rows.forget() // they are of a chain that was cut
	}
	k.startServers()
	k.stops(k.servers)
	for i, f := range k.followers {
		r, err := f.ask()
		if err != nil || r.Version != before[i].Version || r.Digest != before[i].Digest {
			k.Fatalf("a backup was restored, and service %s went from %+v to %+v, %v", f.settings.App, before[i], r, err)
		}
	}
	k.adopt()
}

// stops waits until each of the servers has an alarm for each app.
func (k *killing) stops(servers []*server) {
	for _, s := range servers {
		if err := until(k.ctx, func() error {
			list, err := s.Apps(k.ctx)
			if err != nil {
				return err
			}
			for _, app := range list {
				if app.Alarm == "" || app.Published {
					return fmt.Errorf("app %s goes on: %+v", app.App, app)
				}
			}
			return nil
		}); err != nil {
			k.Fatal(err)
		}
	}
}

// adopt says that the record is right.
func (k *killing) adopt() {
	for _, app := range apps {
		if _, err := k.servers[0].Adopt(k.ctx, app, adminapi.Write{Reason: "soak"}); err != nil {
			k.Fatal(err)
		}
	}
	k.settle()
	k.alarms = k.alarmed()
}

// copied serves a copy of the record beside it. The one that publishes later stops.
func (k *killing) copied() {
	k.settle()
	file := filepath.Join(k.TempDir(), "copy.db")
	save(k, k.file, file)
	other := newServer(k, k.program, file, k.redis.Addr())
	mineFirst := k.random.IntN(2) == 0
	if mineFirst {
		k.put(k.servers[0], "8888/1h")
		k.settle()
	}
	for range 1 + k.random.IntN(2) {
		k.put(other, fmt.Sprintf("%d/1h", 9000+k.random.IntN(100)))
	}
	if mineFirst {
		k.stops([]*server{other})
		k.settle()
		other.kill()
		return
	}
	k.stops(k.servers)
	other.kill()
	k.adopt()
}
