package policies

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Version orders the documents of an app. The zero Version is that of no document.
type Version struct {
	// Generation is raised by a person, after a record was restored from a backup or replaced by another one: all
	// that was published before is then earlier. It begins with 1.
	Generation int64
	// Revision is raised by each change. It begins with 1.
	Revision int64
}

// Compare returns -1 if v is earlier than other, 0 if they are equal, and +1 if v is later.
func (v Version) Compare(other Version) int {
	return cmp.Or(cmp.Compare(v.Generation, other.Generation), cmp.Compare(v.Revision, other.Revision))
}

// String returns v as "3.17": generation and revision. That of the zero Version is "".
func (v Version) String() string {
	if v == (Version{}) {
		return ""
	}
	return strconv.FormatInt(v.Generation, 10) + "." + strconv.FormatInt(v.Revision, 10)
}

// ParseVersion reads what [Version.String] returns.
func ParseVersion(text string) (Version, error) {
	if text == "" {
		return Version{}, nil
	}
	generation, revision, _ := strings.Cut(text, ".")
	g, mistake := strconv.ParseInt(generation, 10, 64)
	r, another := strconv.ParseInt(revision, 10, 64)
	v := Version{Generation: g, Revision: r}
	if mistake != nil || another != nil || g < 1 || r < 1 || v.String() != text {
		return Version{}, fmt.Errorf(`policies: the version %s: give a generation and a revision from 1 on, such as "3.17"`, quote(text))
	}
	return v, nil
}

// Document has the policies that a fleet sets for one app, a program or all programs of one name. It changes what the
// code of the app has named and brings no policies of its own.
type Document struct {
	// App is 1 to 64 letters, digits and the characters "_", "." and "-".
	App string
	// Version grows with each change. In a file it may be left out.
	Version Version
	// Policies are the entries by the names of the policies. A policy that is not there is as the code says.
	Policies map[string]Policy
}

// Policy changes a policy of the code. The zero value changes nothing.
type Policy struct {
	// Text has other numbers, as in "200/1m; shadow", and may change the options that enforce.Fits lists. An option
	// that it leaves out is that of the code. "" keeps the numbers of the code.
	Text string
	// Tiers are texts by the names of tiers, or "unlimited".
	Tiers map[string]string
	// Keys are texts by the text of a key, such as "user=7", or "unlimited", or "blocked".
	Keys map[string]string
	// Apps are further apps that use the policy. It is for records, and not published: a document has all that holds
	// for its app.
	Apps []string
}
