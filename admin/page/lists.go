package page

import (
	"net/url"
	"strconv"
)

// maxRows is the number of rows of a list that a screen shows at once, if there are several lists.
const maxRows = 25

// rows are those of a list that a screen shows: [From:To] of All. Before and After are the addresses of the screen with
// those around them, or "".
type rows struct {
	From, To, All int
	Before, After string
}

// rowsOf returns the rows of a list that a request asks for by the list's name, such as ?policies=50. path is that of the
// screen, which shows at most so many of them at once.
func (v *visit) rowsOf(path, list string, all, most int) rows {
	from, err := strconv.Atoi(v.r.URL.Query().Get(list))
	if err != nil || from < 0 || from >= all {
		from = 0
	}
	r := rows{From: from, To: min(from+most, all), All: all}
	at := func(n int) string {
		query := v.r.URL.Query()
		query.Del("have")
		if query.Del(list); n > 0 {
			query.Set(list, strconv.Itoa(n))
		}
		return addressOf(path, query) + "#" + list
	}
	if r.From > 0 {
		r.Before = at(max(0, r.From-most))
	}
	if r.To < all {
		r.After = at(r.To)
	}
	return r
}

// First is the number of the first one, as people count.
func (r rows) First() int { return r.From + 1 }

func addressOf(path string, query url.Values) string {
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}
