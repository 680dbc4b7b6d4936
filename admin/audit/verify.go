package audit

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-go/weir/admin/internal/sqldb"
)

// Report is the result of Verify.
type Report struct {
	Rows  int64      // those that are as they were written
	End   sqldb.Link // the last of them
	Keys  int64      // the keys of rows that are not forgotten
	Fault *Fault     // the first that was found; nil if there is none
}

// Fault is a row that is not as it was written.
type Fault struct {
	Seq  int64
	Text string
}

// page is the number of rows that Verify reads at once.
const page = 2000

// Verify computes the chain from its first row and compares it with what the database has, and with links that were kept
// elsewhere, such as those that [Links] finds in the lines of Options.Lines. Rows that are written meanwhile are left out.
// A fault is in the report; the error is that of the database.
func (l *Log) Verify(ctx context.Context, kept ...sqldb.Link) (Report, error) {
	var r Report
	var head sqldb.Link
	err := l.db.Read(ctx, func(ctx context.Context, t sqldb.Tx) error {
		var last int64
		if err := t.Row(ctx, `SELECT links, link FROM weir_head WHERE id = 1`).Scan(&head.Seq, &head.Hash); err != nil {
			return err
		}
		if err := t.Row(ctx, `SELECT COALESCE(MAX(seq), 0) FROM weir_audit`).Scan(&last); err != nil {
			return err
		}
		if last > head.Seq {
			r.Fault = &Fault{head.Seq + 1, fmt.Sprintf("was added by hand: the chain has %d rows", head.Seq)}
		}
		return nil
	})
	if err != nil {
		return r, err
	}
	expect := map[int64][]string{}
	for _, link := range kept {
		expect[link.Seq] = append(expect[link.Seq], link.Hash)
	}
	for r.End.Seq < head.Seq {
		before := r.End.Seq
		fault, err := l.verify(ctx, &r, head.Seq, expect)
		if err != nil {
			return r, err
		}
		if fault != nil {
			r.Fault = fault
			return r, nil
		}
		if r.End.Seq == before {
			break
		}
	}
	switch {
	case r.End.Seq < head.Seq:
		r.Fault = &Fault{r.End.Seq + 1, fmt.Sprintf("is missing, and all after it: the chain has %d rows", head.Seq)}
	case r.End != head && r.Fault == nil:
		r.Fault = &Fault{head.Seq, "is not the one that the chain ends with"}
	}
	if r.Fault == nil {
		for _, link := range kept {
			if link.Seq > head.Seq {
				r.Fault = &Fault{head.Seq + 1, fmt.Sprintf("is missing: a line that was kept elsewhere has row %d", link.Seq)}
				break
			}
		}
	}
	return r, nil
}

// errFault ends the reading of a page.
var errFault = errors.New("audit: a fault")

// verify goes on by a page.
func (l *Log) verify(ctx context.Context, r *Report, last int64, expect map[int64][]string) (fault *Fault, err error) {
	err = l.db.Read(ctx, func(ctx context.Context, t sqldb.Tx) error {
		return t.Each(ctx, func(row sqldb.Row) error {
			var found Row
			var secret, text *string
			if err := scan(row, &found, &secret, &text); err != nil {
				return err
			}
			if fault = r.next(&found, secret, text, expect[found.Seq]); fault != nil {
				return errFault
			}
			return nil
		}, `SELECT `+columns+`, k.secret, k.text FROM weir_audit a LEFT JOIN weir_audit_keys k ON k.seq = a.seq
			WHERE a.seq > ? AND a.seq <= ? ORDER BY a.seq LIMIT ?`, r.End.Seq, last, page)
	})
	if errors.Is(err, errFault) {
		err = nil
	}
	return fault, err
}

// next compares the row after the last one.
func (r *Report) next(row *Row, secret, text *string, kept []string) *Fault {
	if row.Seq != r.End.Seq+1 {
		return &Fault{r.End.Seq + 1, "is missing"}
	}
	hash, err := row.link(r.End.Hash)
	if err != nil || hash != row.Hash {
		return &Fault{row.Seq, "was changed, or is not the one that was written after row " + fmt.Sprint(r.End.Seq)}
	}
	if secret != nil {
		if mark(*secret, *text) != row.Mark {
			return &Fault{row.Seq, "has another key than the one that it was written with"}
		}
		r.Keys++
	}
	for _, was := range kept {
		if was != hash {
			return &Fault{row.Seq, "was written anew: a line that was kept elsewhere has another hash"}
		}
	}
	r.Rows++
	r.End = sqldb.Link{Seq: row.Seq, Hash: hash}
	return nil
}
