package redissource

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/core/policies"
)

// held is the document in use, and what Redis has said since.
type held struct {
	document  *policies.Document // nil if there is none
	digest    string
	read      time.Time // when Redis last had it, or zero
	confirmed time.Time // the same, or when Redis last said that there is none while none was in use; at first the start
	unread    string    // why the last document of Redis cannot be used, or ""
	trouble   string    // why the last read has not confirmed the document in use, or ""
}

// head has the fields that stand in the hash beside the document.
type head struct {
	version policies.Version
	digest  string
}

// headFields are the fields of a head, in the order in which parseHead takes them.
var headFields = [...]string{FieldGeneration, FieldRevision, FieldDigest}

// errNothing says that there is none of the fields.
var errNothing = errors.New("the hash has a document and nothing beside it; only weir-admin may write it")

// parseHead reads the first fields of an HMGET.
func parseHead(fields []any) (h head, err error) {
	var texts [len(headFields)]string
	absent := 0
	for i := range texts {
		text, there := fields[i].(string)
		if texts[i] = text; !there {
			absent++
		}
	}
	switch absent {
	case 0:
	case len(texts):
		return head{}, errNothing
	default:
		return head{}, fmt.Errorf("the hash has not all of the fields %s; only weir-admin may write it", strings.Join(headFields[:], ", "))
	}
	for i, number := range []*int64{&h.version.Generation, &h.version.Revision} {
		n, err := strconv.ParseInt(texts[i], 10, 64)
		if err != nil || n < 1 || strconv.FormatInt(n, 10) != texts[i] {
			return head{}, fmt.Errorf("the field %s is %.40q; expected a number from 1 on", headFields[i], texts[i])
		}
		*number = n
	}
	h.digest = texts[2]
	return h, nil
}

// verdict is the meaning of a head for the document in use.
type verdict int

const (
	same    verdict = iota // it is in use
	later                  // it is to be read
	earlier                // it is not taken up
	other                  // of the same version, and with another digest
)

// compare returns what h means for the document in use.
func (d *held) compare(h head) verdict {
	if d.document == nil {
		return later
	}
	switch c := h.version.Compare(d.document.Version); {
	case c > 0:
		return later
	case c < 0:
		return earlier
	case h.digest != d.digest:
		return other
	}
	return same
}

// The functions below note what a read of Redis has found.

func (d *held) failed(err error) { d.trouble = err.Error() }

func (d *held) absent(now time.Time) {
	d.unread, d.trouble = "", ""
	if d.document == nil {
		d.confirmed = now
		return
	}
	d.trouble = "the document is gone from Redis"
}

func (d *held) unusable(err error) {
	d.unread = err.Error()
	d.trouble = d.unread
}

func (d *held) confirm(now time.Time, h head) {
	switch d.compare(h) {
	case same:
		d.unread, d.trouble, d.read, d.confirmed = "", "", now, now
	case earlier:
		d.unread = ""
		d.trouble = fmt.Sprintf("Redis has revision %s, and this process the later %s: adopt the app, or restart the process",
			h.version, d.document.Version)
	case other:
		d.unusable(fmt.Errorf("there is another document of the same revision %s: two databases publish for this app", h.version))
	case later: // is read, and taken up or not
	}
}

// taken notes a document that is in use from now on.
func (d *held) taken(doc *policies.Document, digest string) {
	d.document, d.digest, d.unread, d.trouble = doc, digest, "", ""
}

// meaning returns the word for the whole document, and why, where it is not as it should be.
func (d *held) meaning(now time.Time, stale time.Duration) (policies.Meaning, string) {
	switch {
	case d.unread != "":
		return policies.Unread, d.unread
	case now.Sub(d.confirmed) > stale:
		if d.trouble == "" {
			return policies.Stale, fmt.Sprintf("Redis was last heard of %v ago", now.Sub(d.confirmed).Round(time.Second))
		}
		return policies.Stale, d.trouble
	case d.document == nil:
		return policies.Code, d.trouble
	}
	return policies.Fleet, d.trouble
}

// decode returns the document that data has, if it is of app and what h says.
func decode(app string, h head, data string) (*policies.Document, error) {
	switch {
	case len(data) > policies.MaxSize:
		return nil, tooLarge(h, int64(len(data)))
	case policies.Digest([]byte(data)) != h.digest:
		return nil, fmt.Errorf("the document of revision %s has the digest %.8s, and the field %s is %.8q: it was not written in whole, "+
			"or not by weir-admin", h.version, policies.Digest([]byte(data)), FieldDigest, h.digest)
	}
	d, err := policies.DecodePublished([]byte(data))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the document of revision %s: %w", h.version, err)
	case d.App != app:
		return nil, fmt.Errorf("the document of revision %s is of the app %q, and this is %q", h.version, d.App, app)
	case d.Version != h.version:
		return nil, fmt.Errorf("the document is of revision %s, and the fields beside it of %s", d.Version, h.version)
	}
	return d, nil
}

func tooLarge(h head, size int64) error {
	return fmt.Errorf("the document of revision %s has %d bytes; at most %d are read", h.version, size, policies.MaxSize)
}
