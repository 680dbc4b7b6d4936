package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/policies/redissource"
)

// held is the document that Redis has, without the document.
type held struct {
	version policies.Version // zero if a field is missing
	digest  string
	whole   bool   // whether all fields are there
	foreign string // the reason why it is no document of weir, or ""
}

// look asks for what Redis has of an app. The document itself, up to 256 KiB, is not read.
func look(ctx context.Context, pipe redis.Cmdable, app string) func() (held, error) {
	key := redissource.Key(app)
	head := pipe.HMGet(ctx, key, redissource.FieldGeneration, redissource.FieldRevision, redissource.FieldDigest)
	size := pipe.HStrLen(ctx, key, redissource.FieldDocument)
	return func() (held, error) {
		if redis.HasErrorPrefix(head.Err(), "WRONGTYPE") {
			return held{foreign: fmt.Sprintf("Redis has something else than a hash under %q; delete it", key)}, nil
		}
		if err := cmp.Or(head.Err(), size.Err()); err != nil {
			return held{}, err
		}
		return heldOf(head.Val(), size.Val()), nil
	}
}

// largest is a generation or revision that no record ever reaches. What is larger could not be exceeded by adopting.
const largest = 1 << 52

// heldOf reads the fields. A hash of which somebody has deleted a part is written anew, as one that is gone.
func heldOf(reply []any, size int64) held {
	h := held{whole: size > 0}
	texts := make([]string, len(reply))
	for i, v := range reply {
		text, ok := v.(string)
		texts[i], h.whole = text, h.whole && ok
	}
	if texts[0] == "" || texts[1] == "" {
		return held{}
	}
	generation, mistake := strconv.ParseInt(texts[0], 10, 64)
	revision, another := strconv.ParseInt(texts[1], 10, 64)
	if mistake != nil || another != nil || min(generation, revision) < 1 || max(generation, revision) > largest {
		return held{foreign: fmt.Sprintf("Redis has a document of generation %.40q and revision %.40q, which no publisher "+
			"has written; delete it", texts[0], texts[1])}
	}
	h.version, h.digest = policies.Version{Generation: generation, Revision: revision}, texts[2]
	return h
}

// batch is the number of apps that one pipeline asks for.
const batch = 500

// compare returns the state of each app whose document Redis has returned. The error is that of the first app of which
// it is not known.
func (p *Publisher) compare(ctx context.Context, heads []record.Head) (map[string]State, error) {
	states := make(map[string]State, len(heads))
	var first error
	for part := range slices.Chunk(heads, batch) {
		replies := make([]func() (held, error), len(part))
		pipe := p.rdb.Pipeline()
		for i, h := range part {
			replies[i] = look(ctx, pipe, h.App)
		}
		within, cancel := context.WithTimeout(ctx, maxCommand)
		_, _ = pipe.Exec(within) // each reply has its error
		cancel()
		for i, h := range part {
			has, err := replies[i]()
			if err == nil {
				states[h.App], err = p.level(ctx, h, has)
			}
			if err != nil {
				delete(states, h.App)
				if first == nil {
					first = fmt.Errorf("app %q: %w", h.App, err)
				}
			}
		}
	}
	return states, first
}

// level makes what Redis has of an app what the record says, unless it is not known which of them is right.
func (p *Publisher) level(ctx context.Context, h record.Head, has held) (State, error) {
	verdict, err := p.judge(ctx, h, has)
	if err != nil {
		return State{}, err
	}
	if verdict == doubt { // another publisher may have been faster
		if h, err = p.again(ctx, h.App); err != nil {
			return State{}, err
		}
		if verdict, err = p.judge(ctx, h, has); err != nil {
			return State{}, err
		}
	}
	switch verdict {
	case level:
		return State{Version: has.version}, nil
	case behind:
		return p.write(ctx, h.App)
	default:
		return State{Version: has.version, Alarm: reason(h, has, verdict), Record: h.Version}, nil
	}
}

func (p *Publisher) again(ctx context.Context, app string) (record.Head, error) {
	h, known, err := p.record.Head(ctx, app)
	if err == nil && !known {
		err = &record.NotFoundError{App: app}
	}
	return h, err
}

type verdict int

const (
	level   verdict = iota // Redis has what the record says
	behind                 // Redis has nothing, or what the record said before
	doubt                  // Redis is ahead, or has another document of the same version
	foreign                // Redis has what this record never said
)

// judge compares what Redis has with what the record says.
func (p *Publisher) judge(ctx context.Context, h record.Head, has held) (verdict, error) {
	switch order := has.version.Compare(h.Version); {
	case has.foreign != "":
		return foreign, nil
	case order == 0 && has.digest == h.Digest && has.whole:
		return level, nil
	case order <= 0 && !has.whole:
		return behind, nil
	case order >= 0:
		return doubt, nil
	case has.version.Generation < h.Version.Generation: // somebody has said that this record is right
		return behind, nil
	}
	known, err := p.record.Known(ctx, h.App, has.version, has.digest)
	if err != nil || known {
		return behind, err
	}
	return foreign, nil
}

// reason returns the text of an alarm: what was found, and what to do.
func reason(h record.Head, has held, v verdict) string {
	const adopt = "; find out which of the two is right, and if it is this one, adopt the app (weir adopt)"
	switch {
	case has.foreign != "":
		return has.foreign
	case v == foreign:
		return fmt.Sprintf("Redis has revision %v, which this database never had: two databases publish this app, or it was copied%s",
			has.version, adopt)
	case has.version == h.Version:
		return fmt.Sprintf("Redis has another document of revision %v: two databases publish this app%s", h.Version, adopt)
	}
	return fmt.Sprintf("Redis has revision %v, and the database is at %v: it was restored from a backup, or there are two%s",
		has.version, h.Version, adopt)
}

// attempts bounds how often write begins anew because another publisher was faster.
const attempts = 3

// write writes the document of an app, unless what Redis has by then must not be overwritten. The compared fields are
// watched: if anybody changes the hash between the look and the write, nothing is written.
func (p *Publisher) write(ctx context.Context, app string) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, maxCommand)
	defer cancel()
	document, encoded, err := p.record.Document(ctx, app)
	if err != nil {
		return State{}, err
	}
	h := record.Head{App: app, Version: document.Version, Digest: policies.Digest(encoded)}
	key := redissource.Key(app)
	var state State
	once := func(tx *redis.Tx) error {
		pipe := tx.Pipeline()
		looked := look(ctx, pipe, app)
		_, _ = pipe.Exec(ctx) // the answer has the error
		has, err := looked()
		if err != nil {
			return err
		}
		verdict, err := p.judge(ctx, h, has)
		state = State{Version: has.version}
		if err != nil || verdict != behind { // the next round sees to it
			return err
		}
		_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.HSet(ctx, key,
				redissource.FieldGeneration, strconv.FormatInt(h.Version.Generation, 10),
				redissource.FieldRevision, strconv.FormatInt(h.Version.Revision, 10),
				redissource.FieldDigest, h.Digest,
				redissource.FieldDocument, encoded)
			pipe.Publish(ctx, redissource.Channel(app), "")
			return nil
		})
		if err == nil {
			state.Version = h.Version
		}
		return err
	}
	for range attempts {
		if err = p.rdb.Watch(ctx, once, key); !errors.Is(err, redis.TxFailedErr) {
			return state, err
		}
	}
	p.Wake() // others write it, so that nothing is wrong; the next round looks what has become of it
	return state, nil
}
