package api

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/internal/adminapi"
)

// Condition has the version that a change replaces (RFC 9110, section 13.1). Like the other parts of inputs it is
// exported for huma, which looks into no other.
type Condition struct {
	IfMatch     string `header:"If-Match" doc:"ETag of what is changed, as it was read, or * for whatever there is, or nothing"`
	IfNoneMatch string `header:"If-None-Match" doc:"* to create what is not there yet"`
}

// expect returns the condition. Tags are compared strongly: weak ones match nothing. If there are several, current is
// called for the revision that holds.
func (c Condition) expect(ctx context.Context, current func(context.Context) (int64, error)) (manage.Write, error) {
	switch {
	case c.IfMatch != "" && c.IfNoneMatch != "":
		return manage.Write{}, refusal(http.StatusBadRequest, `found "If-Match" and "If-None-Match"; send one of them`)
	case c.IfNoneMatch == "*":
		return manage.Write{Create: true}, nil
	case c.IfNoneMatch != "":
		return manage.Write{}, refusal(http.StatusBadRequest, `found another "If-None-Match" than *; send * or "If-Match"`)
	case c.IfMatch == "*":
		return manage.Write{Any: true}, nil
	case c.IfMatch == "":
		return manage.Write{}, nil // which the Manager refuses, if the person may know that there is something
	}
	revisions, ok := strong(c.IfMatch)
	switch {
	case !ok:
		return manage.Write{}, refusal(http.StatusBadRequest, `found an "If-Match" that is no list of tags; send the ETag as it was read, such as "17"`)
	case len(revisions) == 0:
		return manage.Write{Revision: manage.NoRevision}, nil
	case len(revisions) == 1 || current == nil:
		return manage.Write{Revision: revisions[0]}, nil
	}
	now, err := current(ctx)
	if err != nil && adminapi.StatusOf(manage.Problem(err)) != http.StatusNotFound {
		return manage.Write{}, err
	}
	if slices.Contains(revisions, now) {
		return manage.Write{Revision: now}, nil
	}
	return manage.Write{Revision: manage.NoRevision}, nil
}

// strong returns the revisions of a list of tags that can match: those that are not weak, and that an answer of this
// API can have had. It reports whether it is a list of tags.
func strong(list string) (revisions []int64, ok bool) {
	for rest := list; ; {
		rest = strings.TrimLeft(rest, " \t,") // empty elements are ignored (RFC 9110, 5.6.1)
		if rest == "" {
			return revisions, ok
		}
		opaque, weak := strings.CutPrefix(rest, "W/")
		quoted, opened := strings.CutPrefix(opaque, `"`)
		tag, after, closed := strings.Cut(quoted, `"`)
		after = strings.TrimLeft(after, " \t")
		if !opened || !closed || after != "" && after[0] != ',' ||
			strings.ContainsFunc(tag, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			return nil, false
		}
		revision, err := strconv.ParseInt(tag, 10, 64)
		if !weak && err == nil && revision > 0 && strconv.FormatInt(revision, 10) == tag {
			revisions = append(revisions, revision)
		}
		rest, ok = after, true
	}
}
