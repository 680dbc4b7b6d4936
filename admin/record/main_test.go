package record_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/record"
)

// endEnv has the location of a database in which a child of the test ends what is due, again and again, until it is
// killed.
const endEnv = "WEIR_RECORD_END"

func TestMain(m *testing.M) {
	if location := os.Getenv(endEnv); location != "" {
		endUntilKilled(location)
	}
	os.Exit(sqltest.Main(m))
}

func endUntilKilled(location string) {
	db, err := sqldb.Open(context.Background(), location)
	if err != nil {
		fmt.Println(err)
		return
	}
	r := record.New(db, audit.New(db, audit.Options{}))
	fmt.Println("ready")
	for {
		_, _ = r.EndDue(context.Background()) // the test looks at the database
	}
}
