package record

import (
	"context"
	"fmt"

	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/core/policies"
)

// rendered is the document of an app.
type rendered struct {
	document *policies.Document
	encoded  []byte
	digest   string
}

// few is the number of apps whose policies are read by a query each. Beyond, one query reads those of all.
const few = 8

// render makes the documents of apps, of the versions given. An app's policies are those that it owns or uses, and
// those of all apps whose names it has not.
func render(ctx context.Context, t sqldb.Tx, apps map[string]policies.Version) ([]rendered, error) {
	documents, err := documentsOf(ctx, t, apps)
	if err != nil {
		return nil, err
	}
	all := make([]rendered, 0, len(apps))
	for app, version := range apps {
		d := &policies.Document{App: app, Version: version, Policies: documents[app]}
		encoded, err := d.Encode()
		if err != nil {
			return nil, &InvalidError{App: app, Err: err}
		}
		all = append(all, rendered{document: d, encoded: encoded, digest: policies.Digest(encoded)})
	}
	return all, nil
}

// documents returns the policies of apps.
func documentsOf(ctx context.Context, t sqldb.Tx, apps map[string]policies.Version) (map[string]map[string]policies.Policy, error) {
	found := map[string]map[string]policies.Policy{}
	decoded := map[string]policies.Policy{} // a policy that many apps use is read once
	scan := func(row sqldb.Row) error {
		var app, name, owner, text string
		if err := row.Scan(&app, &name, &owner, &text); err != nil {
			return err
		}
		p, ok := decoded[owner+" "+name]
		if !ok {
			var err error
			if p, err = decode(text); err != nil {
				return err
			}
			p.Apps = nil // only the record has the list of apps, no document
			decoded[owner+" "+name] = p
		}
		if found[app] == nil {
			found[app] = map[string]policies.Policy{}
		}
		found[app][name] = p
		return nil
	}
	const query = `SELECT u.app, u.name, u.owner, p.body FROM weir_users u
		JOIN weir_policies p ON p.app = u.owner AND p.name = u.name AND p.deleted = 0`
	if len(apps) > few {
		if err := t.Each(ctx, scan, query); err != nil {
			return nil, err
		}
	} else {
		for app := range apps {
			if err := t.Each(ctx, scan, query+` WHERE u.app = ?`, app); err != nil {
				return nil, err
			}
		}
		if err := t.Each(ctx, scan, query+` WHERE u.app = '*'`); err != nil {
			return nil, err
		}
	}
	for app := range apps {
		if found[app] == nil {
			found[app] = map[string]policies.Policy{}
		}
		for name, p := range found[policies.AllApps] {
			if _, ok := found[app][name]; !ok && app != policies.AllApps {
				found[app][name] = p
			}
		}
		if n := len(found[app]); n > policies.MaxPolicies {
			return nil, &InvalidError{App: app, Err: fmt.Errorf("%d policies; at most %d", n, policies.MaxPolicies)}
		}
	}
	return found, nil
}
