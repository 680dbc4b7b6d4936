package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/stats"
	"github.com/weir-go/weir/lua"
)

// A board has places for boardSize keys, and is gone boardLife after the last addition. One addition has at most
// maxScores keys, and a question is about at most maxBoards boards.
const (
	boardSize = 1000
	boardLife = 2 * time.Hour
	maxScores = 200
	maxBoards = 200
)

// scoreWeight is the weight of a key of a board, of which the script makes up to three commands.
const scoreWeight = 6

// boardScript is made when boards are used.
var boardScript = sync.OnceValue(func() *script { return newScript(lua.Board()) })

// AddScores adds what this process has counted to boards that the fleet shares, in one pipeline, beside what no request
// waits for. A board has places for the 1000 keys that count most, and expires two hours after the last addition. With
// Options.HashKeys the keys are hashed; see [Store.ScoreKey].
//
// If some could not be added, the error is a [*core.BatchError]. Where the StoreError of one says MaybeExecuted, do not
// send its Units again: count them in the next Missed, as they may have been added.
//
// The user needs the rights that permits need.
func (s *Store) AddScores(ctx context.Context, all []stats.Scores) error {
	return s.addScores(ctx, all, boardSize)
}

func (s *Store) addScores(ctx context.Context, all []stats.Scores, size int64) error {
	entries := make([]entry, len(all))
	for i := range all {
		e, err := s.scores(&all[i], size)
		if err != nil {
			return err
		}
		entries[i] = e
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	nodes := s.askAll(ctx, scoring, entries)
	errs := make([]error, len(all))
	for i := range entries {
		errs[i] = entries[i].err
		var failed *core.StoreError
		if errors.As(errs[i], &failed) && strings.HasPrefix(serverSays(failed.Err), deniedInScript) {
			// The right that is missing may be that of a command after the first that wrote.
			errs[i] = nodes[i].named(&core.StoreError{Class: failed.Class, MaybeExecuted: true, Err: failed.Err})
		}
	}
	return batchError(errs)
}

// scores returns the entry for an addition.
func (s *Store) scores(add *stats.Scores, size int64) (entry, error) {
	name, ok := s.names.Board(add.Board)
	if !ok {
		return entry{}, fmt.Errorf("redisstore: the board %.80q; give 1 to 200 letters, digits or \"_.~:/=&%%@-\"", add.Board)
	}
	if _, ok := s.names.Board(add.Source); !ok || len(add.Source) > maxSource {
		return entry{}, fmt.Errorf("redisstore: the source %.80q of a board; give 1 to %d letters, digits or \"_.~:/=&%%@-\"", add.Source, maxSource)
	}
	if len(add.Units) > maxScores {
		return entry{}, fmt.Errorf("redisstore: %d keys for the board %q; give at most %d", len(add.Units), add.Board, maxScores)
	}
	if add.Missed < 0 || add.Missed > maxScore {
		return entry{}, fmt.Errorf("redisstore: Missed is %d; give 0 to 2^53", add.Missed)
	}
	e := entry{key: name, script: boardScript(), weight: scoreWeight * int64(1+len(add.Units))}
	e.args = make([]any, 0, 4+2*len(add.Units))
	e.args = append(e.args, strconv.FormatInt(size, 10), strconv.FormatInt(boardLife.Milliseconds(), 10), add.Source,
		strconv.FormatInt(add.Missed, 10))
	for _, key := range slices.Sorted(maps.Keys(add.Units)) {
		units := add.Units[key]
		if key == "" || units < 0 || units > maxScore {
			return entry{}, fmt.Errorf("redisstore: %d units of a key of %d bytes for the board %q; give a key, and 0 to 2^53", units, len(key), add.Board)
		}
		if units > 0 {
			e.args = append(e.args, s.ScoreKey(key), strconv.FormatInt(units, 10))
		}
	}
	return e, nil
}

const (
	maxSource = 64
	maxScore  = 1 << 53 // beyond it, scores are not exact
)

// ScoreKey returns the text that stands for a key on boards: the key, or a hash of it if there are HashKeys, or if it is
// long or has other bytes than letters, digits and "_.~:/=&%@-". With it, a caller that has the key finds it among the
// [Store.Scores].
func (s *Store) ScoreKey(key string) string {
	if key == "" {
		return ""
	}
	return s.names.Of("", key)
}

// Scores returns the n keys that count most on all of these boards together, such as those of the last minutes of one
// policy, the first the one that surely counts most. Any key that is not among them counts rest units at most. It asks the
// servers for the first 4n keys of each board, at least 100, so it is for pages and tools, and it takes a second at most.
// A board that does not exist counts nothing.
func (s *Store) Scores(ctx context.Context, boards []string, n int) (scores []stats.Score, rest int64, err error) {
	if len(boards) > maxBoards {
		return nil, 0, fmt.Errorf("redisstore: %d boards; give at most %d", len(boards), maxBoards)
	}
	if n < 1 || n > boardSize {
		return nil, 0, fmt.Errorf("redisstore: the first %d keys; give 1 to %d", n, boardSize)
	}
	if s.rdb == nil {
		return nil, 0, errZero
	}
	type reply struct{ first, notes *redis.ZSliceCmd }
	replies := make([]reply, len(boards))
	read := int64(min(max(4*n, 100), boardSize))
	ctx, cancel := context.WithTimeout(ctx, backgroundDeadline)
	defer cancel()
	pipe := s.rdb.Pipeline()
	for i, board := range boards {
		name, ok := s.names.Board(board)
		if !ok {
			return nil, 0, fmt.Errorf("redisstore: the board %.80q; give 1 to 200 letters, digits or \"_.~:/=&%%@-\"", board)
		}
		replies[i] = reply{
			pipe.ZRangeWithScores(ctx, name, -read-1, -1),
			pipe.ZRangeByScoreWithScores(ctx, name, &redis.ZRangeBy{Min: "-inf", Max: "0"}),
		}
	}
	if _, err := pipe.Exec(ctx); err != nil && !isForeign(err) {
		return nil, 0, classify(err)
	}
	sum := scoreSum{byKey: map[string]*stats.Score{}}
	for _, r := range replies {
		if err := cmp.Or(r.first.Err(), r.notes.Err()); err != nil && !isForeign(err) {
			return nil, 0, classify(err)
		}
		sum.add(r.first.Val(), r.notes.Val(), int(read))
	}
	scores, rest = sum.first(n)
	return scores, rest, nil
}

// isForeign reports that a server found something else than a board under its name. The next addition puts a board there.
func isForeign(err error) bool { return strings.HasPrefix(serverSays(err), "WRONGTYPE") }

// unitsOf returns the units that a score stands for. What somebody else has written may be any number.
func unitsOf(z redis.Z) int64 {
	if math.IsNaN(z.Score) {
		return 0
	}
	return int64(min(max(z.Score, -maxScore), maxScore))
}

// note begins the members of a board that are not keys: it is the floor, or followed by the name of a process.
const note = "!"

// scoreSum adds boards up.
type scoreSum struct {
	byKey  map[string]*stats.Score // High is beyond absent
	absent int64                   // the most that a key has which was found on no board
}

// add adds a board. first has the keys that count most, the last of them first: up to read of them, and the next one if
// there are more. notes has the members that are not keys, of which first may have some as well.
func (s *scoreSum) add(first, notes []redis.Z, read int) {
	var floor, missed int64
	for _, z := range notes {
		if z.Member == note {
			floor = -min(unitsOf(z), 0)
		} else {
			missed = min(missed-min(unitsOf(z), 0), maxScore)
		}
	}
	for len(first) > 0 && unitsOf(first[0]) <= 0 {
		first = first[1:]
	}
	absent := floor
	if len(first) > read {
		absent = max(floor, unitsOf(first[0]))
		first = first[1:]
	}
	s.absent += absent + missed
	for _, z := range first {
		key, _ := z.Member.(string)
		if strings.HasPrefix(key, note) { // which is never above 0, unless somebody else has written it
			continue
		}
		if s.byKey[key] == nil {
			s.byKey[key] = &stats.Score{Key: key}
		}
		s.byKey[key].Low += max(0, unitsOf(z)-floor)
		s.byKey[key].High += unitsOf(z) - absent
	}
}

// first returns the n keys that count most, and the most that any other key counts.
func (s *scoreSum) first(n int) (scores []stats.Score, rest int64) {
	for _, score := range s.byKey {
		score.High += s.absent
		scores = append(scores, *score)
	}
	slices.SortFunc(scores, func(a, b stats.Score) int {
		return cmp.Or(cmp.Compare(b.Low, a.Low), cmp.Compare(b.High, a.High), cmp.Compare(a.Key, b.Key))
	})
	rest = s.absent
	for len(scores) > n {
		rest = max(rest, scores[len(scores)-1].High)
		scores = scores[:len(scores)-1]
	}
	return scores, rest
}
