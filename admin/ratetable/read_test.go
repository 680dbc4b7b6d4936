package ratetable_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/ratetable"
)

// table is the table as the older limiter makes it.
const table = `CREATE TABLE rate_limiter_info (
	id int(11) NOT NULL AUTO_INCREMENT,
	name varchar(50) NOT NULL,
	apps varchar(1000) DEFAULT NULL,
	max_permits int(11) DEFAULT NULL,
	rate int(11) DEFAULT NULL,
	created_by varchar(50) DEFAULT NULL,
	updated_by varchar(50) DEFAULT NULL,
	created_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,
	updated_at timestamp NULL DEFAULT NULL,
	PRIMARY KEY (id), UNIQUE KEY name (name)
) DEFAULT CHARSET=utf8`

func TestRead(t *testing.T) {
	db, err := ratetable.Open(sqltest.MariaDB(t).Database(t))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	_, err = ratetable.Read(t.Context(), db)
	require.ErrorContains(t, err, "no table rate_limiter_info")
	_, err = db.ExecContext(t.Context(), table)
	require.NoError(t, err)
	cut := strings.Repeat("payment,", 125)
	for _, row := range [][]any{
		{"login", "pay,shop", 20, 5, "anna", nil, "2021-03-01 10:00:00", "2022-01-01 00:00:00"},
		{"export", cut, 20, 5, "anna", "", "2021-03-01 10:00:00", nil},
		{"mail", nil, nil, -1, nil, nil, "2021-03-01 10:00:00", nil},
		{"búsqueda", "pay", 1, 1, nil, nil, "2021-03-01 10:00:00", nil},
		{"sms", "pay", 1, 1, nil, nil, "2021-03-01 10:00:00", nil},
	} {
		_, err := db.ExecContext(t.Context(), `INSERT INTO rate_limiter_info
			(name, apps, max_permits, rate, created_by, updated_by, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`, row...)
		require.NoError(t, err)
	}
	got, err := ratetable.Read(t.Context(), db)
	require.NoError(t, err)
	assert.Equal(t, []int64{50, 1000}, []int64{got.Name, got.Apps})
	require.Len(t, got.Rows, 5)
	assert.Equal(t, ratetable.Row{
		ID: 1, Name: "login", Apps: "pay,shop", MaxPermits: number(20), Rate: number(5), Creator: "anna",
		Created: "2021-03-01 10:00:00", Edited: "2022-01-01 00:00:00",
	}, got.Rows[0])
	assert.Equal(t, "búsqueda", got.Rows[3].Name)

	plan, err := ratetable.PlanOf(got, "shop")
	require.NoError(t, err)
	var doubts []string
	for _, d := range plan.Doubts {
		doubts = append(doubts, d.String())
	}
	assert.Equal(t, []string{
		`row 2, "export": left out: apps has exactly the 1000 characters of its column, and may have been cut off`,
		`row 3, "mail": left out: apps is empty: does nobody use it, or everybody?`,
		`row 3, "mail": left out: rate is -1, by which nobody would be admitted: is it meant to be off, or blocked?`,
		`row 3, "mail": left out: max_permits is NULL`,
		`row 4, "búsqueda": left out: the name: the name "búsqueda" of a policy: give 1 to 64 letters, digits, "_", "." or "-", but not "." or ".."`,
		`row 5, "sms": nobody stands in created_by, so that it is not known who answers for it`,
	}, doubts)
	require.Len(t, plan.Policies, 2)
	assert.Equal(t, "5/1s burst 20 token-bucket", plan.Policies[0].Policy.Text)
	assert.Equal(t, []string{"pay"}, plan.Policies[0].Policy.Apps)
}

// A place has nothing that is secret.
func TestPlace(t *testing.T) {
	assert.Equal(t, "mysql://h:3306/d", ratetable.Place("mysql://anna:secret@h:3306/d?tls=true&password=secret"))
	assert.Empty(t, ratetable.Place("mysql://anna:secret@%zz/d"))
}

// A location that cannot be opened is refused, without its password.
func TestOpen(t *testing.T) {
	for _, location := range []string{"", "weir.db", "postgres://anna:secret@h/d", "mysql://anna:secret@%zz/d", "mysql://anna:secret@h/d?tls=none"} {
		_, err := ratetable.Open(location)
		require.Error(t, err, location)
		assert.NotContains(t, err.Error(), "secret")
	}
}
