package record

import (
	"context"
	"encoding/json"
	"time"

	"github.com/weir-go/weir/admin/internal/sqldb"
)

// forgetAtOnce bounds the rows of one transaction, for which all changes wait.
const forgetAtOnce = 200

// ForgetKeys deletes keys, which are persons, mostly, from what the record keeps of the time before: from versions of
// policies that do not have them now, from proposals that are decided, and from temporary changes that have ended. It
// returns the number of rows. A rollback to such a version does not bring the keys back.
func (r *Record) ForgetKeys(ctx context.Context, before time.Time) (n int64, err error) {
	last := pastKeys{}
	for done := false; !done; {
		err := r.db.Change(ctx, func(ctx context.Context, c *sqldb.Change) error {
			var rows []pastKeys
			if err := c.Each(ctx, func(row sqldb.Row) error {
				var k pastKeys
				err := row.Scan(&k.app, &k.name, &k.revision, &k.body)
				rows = append(rows, k)
				return err
			}, `SELECT app, name, revision, body FROM weir_versions WHERE at < ? AND body LIKE '%"keys":{%'
				AND (app > ? OR app = ? AND (name > ? OR name = ? AND revision > ?)) ORDER BY app, name, revision LIMIT ?`,
				before.UnixMicro(), last.app, last.app, last.name, last.name, last.revision, forgetAtOnce); err != nil {
				return err
			}
			done = len(rows) < forgetAtOnce
			for _, k := range rows {
				last = k
				changed, err := k.forget(ctx, c)
				if err != nil {
					return err
				}
				if changed {
					n++
				}
			}
			return nil
		})
		if err != nil {
			return n, err
		}
	}
	err = r.db.Change(ctx, func(ctx context.Context, c *sqldb.Change) error {
		temporary, err := c.Exec(ctx, `DELETE FROM weir_temporary WHERE ended > 0 AND ended < ? AND element <> 'text'`, before.UnixMicro())
		if err != nil {
			return err
		}
		proposals, err := r.forgetProposed(ctx, c, before)
		n += temporary + proposals
		return err
	})
	return n, err
}

// pastKeys is a version of a policy that has keys.
type pastKeys struct {
	app, name, body string
	revision        int64
}

// forget takes the keys out of a version that the policy does not have now.
func (k *pastKeys) forget(ctx context.Context, c *sqldb.Change) (changed bool, err error) {
	p, err := decode(k.body)
	if err != nil {
		return false, err
	}
	now, err := heldOf(ctx, c.Tx, k.app, k.name)
	if err != nil {
		return false, err
	}
	held := valueOf(now.policy).Keys
	for key := range p.Keys {
		if _, kept := held[key]; !kept {
			delete(p.Keys, key)
			changed = true
		}
	}
	if !changed {
		return false, nil
	}
	body, err := encode(p)
	if err != nil {
		return false, err
	}
	_, err = c.Exec(ctx, `UPDATE weir_versions SET body = ? WHERE app = ? AND name = ? AND revision = ?`, body, k.app, k.name, k.revision)
	return true, err
}

// forgetProposed takes the keys out of proposals that wait for nobody any more.
func (r *Record) forgetProposed(ctx context.Context, c *sqldb.Change, before time.Time) (n int64, err error) {
	all, err := r.proposals(ctx, c.Tx, `WHERE made < ? AND body LIKE '%"keys":{%'`, before.UnixMicro())
	if err != nil {
		return 0, err
	}
	for _, p := range all {
		if p.State == Open {
			continue
		}
		for i := range p.Edits {
			p.Edits[i].Patch.Keys, p.Edits[i].Before.Keys = nil, nil
		}
		body, err := json.Marshal(p.Proposed)
		if err != nil {
			return n, err
		}
		if _, err := c.Exec(ctx, `UPDATE weir_proposals SET body = ? WHERE id = ?`, string(body), p.ID); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}
