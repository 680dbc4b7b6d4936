package people

import (
	"context"
	"encoding/json"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/rights"
)

// By is the author of a change.
type By struct {
	Person *rights.Person
	Reason string
	// Permit returns why the person may not make the change, or nil. It is called within the change's transaction, with
	// the rights of that moment, so that of two people who take each other's rights away one is refused. nil permits.
	Permit func(*rights.Person) error
}

// permitted calls Permit with the rights of the transaction's moment.
func (p *People) permitted(ctx context.Context, t sqldb.Tx, by By) error {
	if by.Person == nil {
		return invalid("nobody makes this change; give a person")
	}
	if by.Permit == nil {
		return nil
	}
	now, err := p.Now(ctx, t, by.Person)
	if err != nil {
		return err
	}
	return by.Permit(now)
}

// Now returns the rights that a person has as a transaction sees them. Those of somebody who has none are empty.
func (p *People) Now(ctx context.Context, t sqldb.Tx, who *rights.Person) (*rights.Person, error) {
	if who == nil || who.ID == consoleID {
		return who, nil
	}
	if who.Token == 0 {
		one, err := p.person(ctx, t, who.ID)
		if err != nil {
			return nil, err
		}
		return one.rights(p.now(), true), nil
	}
	tok, err := p.token(ctx, t, who.Token)
	if err != nil || tok == nil || !p.now().Before(tok.ends) {
		return &rights.Person{ID: who.ID, Name: who.Name, Token: who.Token}, err
	}
	maker, err := p.person(ctx, t, tok.maker)
	if err != nil {
		return nil, err
	}
	return tok.rights(maker, p.now()), nil
}

// changed writes what was done to the audit, a row for each detail, and lets all processes read again what they know.
func (p *People) changed(ctx context.Context, c *sqldb.Change, by By, what audit.Row, details ...any) error {
	what.By, what.Reason = audit.Person{ID: by.Person.ID, Name: by.Person.Name}, by.Reason
	for _, detail := range details {
		text, err := json.Marshal(detail)
		if err != nil {
			return err
		}
		what.Detail = string(text)
		if err := p.audit.Append(ctx, c, what); err != nil {
			return err
		}
	}
	c.After(func(error) { p.changes.Add(1) })
	return outdate(ctx, c.Tx)
}

// outdate makes what all processes know old.
func outdate(ctx context.Context, t sqldb.Tx) error {
	_, err := t.Exec(ctx, `UPDATE weir_known SET changes = changes + 1 WHERE id = 1`)
	return err
}

// write calls do in a transaction that is no change of anybody's rights, and lets what is known be read again.
func (p *People) write(ctx context.Context, do func(context.Context, sqldb.Tx) error) error {
	defer p.changes.Add(1) // also if nobody knows whether it was written
	return p.db.Write(ctx, func(ctx context.Context, t sqldb.Tx) error {
		if err := do(ctx, t); err != nil {
			return err
		}
		return outdate(ctx, t)
	})
}
