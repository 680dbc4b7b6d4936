package rights

import "slices"

// Action is something that a person does, by the name that also stands in the audit.
type Action string

// The actions.
const (
	ActionView Action = "view" // what is no secret within an app

	ActionLook      Action = "look"      // at the counts of one key, which the audit records
	ActionResetKey  Action = "reset-key" // gives one caller the whole limit back
	ActionSetKey    Action = "set-key"   // blocks a key, or gives it other numbers
	ActionTrial     Action = "trial"
	ActionTemporary Action = "temporary"

	ActionWrite    Action = "write"
	ActionDelete   Action = "delete"
	ActionApprove  Action = "approve"
	ActionGrant    Action = "grant"
	ActionToken    Action = "token"
	ActionSettings Action = "settings"

	ActionAddApp    Action = "add-app"
	ActionDeleteApp Action = "delete-app"
	ActionGroups    Action = "groups"
	ActionAdopt     Action = "adopt"
	ActionAuditAll  Action = "audit-all"

	ActionImport Action = "import" // by a command, for whoever can open the database: nobody else has the right
)

// Right is a row of the table.
type Right struct {
	Action Action
	Least  Role
	Does   string // for people
}

var table = []Right{
	{ActionView, Viewer, "see an app: policies, numbers, usage, history, audit, proposals, processes"},

	{ActionLook, Operator, "look at the counts of one key"},
	{ActionResetKey, Operator, "reset the counts of one key"},
	{ActionSetKey, Operator, "block one key, or give it other numbers"},
	{ActionTrial, Operator, "put a policy on trial, or enforce it again"},
	{ActionTemporary, Operator, "write other numbers for a time"},

	{ActionWrite, Owner, "write a policy: text, tiers, keys, further apps; take over, roll back, apply a document"},
	{ActionDelete, Owner, "delete a policy"},
	{ActionApprove, Owner, "approve or reject what another owner has proposed"},
	{ActionGrant, Owner, "give roles in the app to people and groups, and take them away"},
	{ActionToken, Owner, "make tokens with at most the maker's rights"},
	{ActionSettings, Owner, "change the app's settings: title, four eyes, kept by files"},

	{ActionAddApp, Admin, "add an app"},
	{ActionDeleteApp, Admin, "delete an app"},
	{ActionGroups, Admin, "give roles in all apps, to people and to groups of the identity provider"},
	{ActionAdopt, Admin, "make an app's document later than all that was published"},
	{ActionAuditAll, Admin, "read the audit of all apps"},
}

var least = func() map[Action]Role {
	m := make(map[Action]Role, len(table))
	for _, right := range table {
		m[right.Action] = right.Least
	}
	return m
}()

// Table returns every action with the least role that may do it, in the order of the roles.
func Table() []Right { return slices.Clone(table) }
