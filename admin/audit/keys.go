package audit

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/weir-go/weir/admin/internal/sqldb"
)

// keep writes the key of a row, and sets its mark.
func keep(ctx context.Context, c *sqldb.Change, r *Row) error {
	r.Key = line(r.Key, maxKey)
	random := make([]byte, 32)
	_, _ = rand.Read(random) // it never fails
	secret := hex.EncodeToString(random)
	r.Mark = mark(secret, r.Key)
	_, err := c.Exec(ctx, `INSERT INTO weir_audit_keys (seq, at, secret, text) VALUES (?, ?, ?, ?)`,
		r.Seq, r.At.UnixMicro(), secret, r.Key)
	return err
}

// ForgetKeys deletes the keys of all rows before a time, with the secrets of their marks, so that nobody can say or try
// out whose they were, and returns their number. The rows stay, and so does the chain; that keys were forgotten is one
// more row.
func (l *Log) ForgetKeys(ctx context.Context, by Person, reason string, before time.Time) (n int64, err error) {
	err = l.db.Change(ctx, func(ctx context.Context, c *sqldb.Change) error {
		if n, err = c.Exec(ctx, `DELETE FROM weir_audit_keys WHERE at < ?`, before.UnixMicro()); err != nil {
			return err
		}
		return l.Append(ctx, c, Row{
			By: by, Action: "forget-keys", Reason: reason,
			Detail: fmt.Sprintf(`{"keys":%d,"before":%q}`, n, before.UTC().Format(time.RFC3339)),
		})
	})
	return n, err
}
