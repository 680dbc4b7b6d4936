package obey

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/internal/pace"
)

// Options configures a [Transport]. The zero Options obey what servers say: requests wait for their turn, and nothing is
// sent twice.
type Options struct {
	// Next sends the requests. nil means http.DefaultTransport.
	Next http.RoundTripper
	// Key returns whose limit a request counts against: requests of one key wait in one line. nil means the scheme and
	// host of the URL with a hash of the header Authorization. Give a function if the server counts otherwise, such as by
	// route or by a header with an API key.
	Key func(*http.Request) string
	// MaxWait is the longest time that a request waits for its turn. 0 means 30 s, and a negative one that it never waits.
	// A request that has waited for so long is sent if the server would admit it: only its pace said no. Otherwise it
	// fails with a [*WaitError].
	MaxWait time.Duration
	// Waiting is the number of requests of one key that may wait at a time. 0 means 1000.
	Waiting int
	// Repeat is the number of times that a request is sent again after a 429 or 503, once the wait is over that the server
	// asks for. Only a request is that has no body or a GetBody, and whose method is idempotent or that has an
	// Idempotency-Key. 0 means never; leave it so under a client that repeats by itself.
	Repeat int
	// Limiter is a limit of your own that requests pass first. It is asked for the Key, and requests wait as the word
	// "wait" of its policy allows. What it refuses is an [*enforce.OverLimitError]. nil means none.
	Limiter *enforce.Limiter
	// Observe is called for what is worth a line in a log, such as fields that could not be read. It must not block. nil
	// means nobody.
	Observe func(Event)
}

// Event is a report of a [Transport] to [Options].Observe.
type Event struct {
	// Key is the key of the request.
	Key string
	// Field is the name of a field of an answer that could not be read and counts as absent, such as "RateLimit". It is
	// reported once a key. It is "" if nothing is learnt of the key, because 10 000 others have requests under way.
	Field string
}

// WaitError is the error of a request that was not sent, because its turn would have come too late or too many requests
// of its key were waiting.
type WaitError = pace.WaitError

// Transport is an [http.RoundTripper] that obeys the limits of servers. Make it with [New]. It is safe for concurrent
// use.
type Transport struct {
	next    http.RoundTripper
	key     func(*http.Request) string
	repeat  int
	limiter *enforce.Limiter
	pace    *pace.Pace
}

// New returns a Transport. It fails if a number of the Options is out of bounds.
func New(o Options) (*Transport, error) {
	var mistakes []error
	if o.Waiting < 0 {
		mistakes = append(mistakes, fmt.Errorf("obey: Waiting is %d; give the number of requests that may wait, or 0 for 1000", o.Waiting))
	}
	if o.Repeat < 0 {
		mistakes = append(mistakes, fmt.Errorf("obey: Repeat is %d; give the number of times a request is sent again, or 0", o.Repeat))
	}
	if o.Limiter != nil && slices.ContainsFunc(o.Limiter.Policy().Limits(), concurrent) {
		mistakes = append(mistakes, fmt.Errorf("obey: the policy %q has permits; give a Limiter of rates alone", o.Limiter.Policy()))
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	t := &Transport{next: o.Next, key: o.Key, repeat: o.Repeat, limiter: o.Limiter}
	if t.next == nil {
		t.next = http.DefaultTransport
	}
	if t.key == nil {
		t.key = defaultKey(hashIn(&o))
	}
	p := pace.Options{MaxWait: o.MaxWait, Waiting: o.Waiting}
	if p.MaxWait == 0 {
		p.MaxWait = 30 * time.Second
	}
	if p.Waiting == 0 {
		p.Waiting = 1000
	}
	if o.Observe != nil {
		p.Observe = func(key, field string) { o.Observe(Event{Key: key, Field: field}) }
	}
	t.pace = pace.New(p)
	return t, nil
}

func concurrent(l core.Limit) bool { return l.Algorithm == core.Concurrent }

// defaultKey returns the function that stands for a nil Options.Key, with a hash of credentials.
func defaultKey(hash func(string) uint64) func(*http.Request) string {
	return func(r *http.Request) string {
		var room [128]byte
		key := append(append(append(room[:0], r.URL.Scheme...), "://"...), r.URL.Host...)
		if credential := r.Header["Authorization"]; len(credential) > 0 {
			key = strconv.AppendUint(append(key, '#'), hash(stable(credential[0])), 16)
		}
		return string(key)
	}
}

// hashIn returns the hash that a Transport uses: any will do in a process, but if there is a Limiter, which may be a
// fleet's, it is the same in all processes, and nobody can find a credential by it.
func hashIn(o *Options) func(string) uint64 {
	if o.Limiter == nil {
		seed := maphash.MakeSeed()
		return func(credential string) uint64 { return maphash.String(seed, credential) }
	}
	return func(credential string) uint64 {
		sum := sha256.Sum256([]byte(credential))
		return binary.BigEndian.Uint64(sum[:])
	}
}

// stable returns the part of a credential that is the same in all requests: that of a signature by AWS, which changes
// with each request, ends with the access key.
func stable(credential string) string {
	if rest, ok := strings.CutPrefix(credential, "AWS4-HMAC-SHA256 Credential="); ok {
		key, _, _ := strings.Cut(rest, "/")
		return key
	}
	return credential
}

// RoundTrip waits for the turn of a request, sends it, and learns from the answer. It implements [http.RoundTripper].
// Before anything is sent, it fails with a [*WaitError], with an [*enforce.OverLimitError] of the Limiter, or with the
// error of the request's context.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	key := t.key(r)
	turn, err := t.begin(r, key, time.Time{})
	if err != nil {
		closeBody(r)
		return nil, err
	}
	came := turn.Came()
	for repeated := 0; ; repeated++ {
		res, refused, err := t.send(r, turn)
		if err != nil || !refused || repeated == t.repeat {
			return res, err
		}
		again := repeatable(r)
		if again == nil {
			return res, nil
		}
		turn, err = t.begin(again, key, came)
		if err == nil || r.Context().Err() != nil {
			drain(res.Body)
		}
		if err != nil {
			if closeBody(again); r.Context().Err() != nil {
				return nil, err
			}
			return res, nil // no turn in time: the request was sent, and this is its answer
		}
		r = again
	}
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		r.Body.Close()
	}
}

// begin waits until r may be sent.
func (t *Transport) begin(r *http.Request, key string, came time.Time) (*pace.Turn, error) {
	var own enforce.Admission
	if t.limiter != nil {
		if err := t.admit(r.Context(), key, &own); err != nil {
			return nil, err
		}
	}
	turn, err := t.pace.Wait(r.Context(), key, came)
	if err != nil {
		own.GiveBack(own.Result.Taken)
		own.Release()
	}
	return turn, err
}

// admit passes the Limiter.
func (t *Transport) admit(ctx context.Context, key string, a *enforce.Admission) error {
	wait := t.limiter.Policy().Options().Wait
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, max(0, time.Until(end)))
	}
	if err := t.limiter.Begin(ctx, enforce.Ask{Key: key, Cost: 1, Wait: wait}, a); err != nil {
		return err
	}
	if !a.Result.Allowed() {
		return fmt.Errorf("obey: the policy %q: %w", t.limiter.Policy(), &enforce.OverLimitError{Result: a.Result})
	}
	return a.Wait(ctx)
}

// CloseIdleConnections closes the idle connections of Options.Next, if it has such a method. It is called by
// [http.Client.CloseIdleConnections].
func (t *Transport) CloseIdleConnections() {
	if next, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		next.CloseIdleConnections()
	}
}

// send sends r and ends its turn, also if Next panics. refused reports that the answer says when to come again.
func (t *Transport) send(r *http.Request, turn *pace.Turn) (res *http.Response, refused bool, err error) {
	defer turn.Failed() // does nothing after Answered
	res, err = t.next.RoundTrip(r)
	if err != nil {
		return res, false, err
	}
	get := func(name string) []string { return res.Header[name] }
	answer := pace.Read(get, res.StatusCode, time.Now())
	turn.Answered(answer)
	return res, answer.Refused && answer.Waits(), nil
}
