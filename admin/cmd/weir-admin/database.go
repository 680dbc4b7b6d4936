package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/sqldb"
	_ "github.com/weir-go/weir/admin/internal/sqldb/drivers"
	"github.com/weir-go/weir/admin/record"
)

// database has the flag of the commands that open the database.
type database struct {
	DB location `name:"db" default:"weir.db" placeholder:"LOCATION" help:"The database: a file, postgres://user@host/database or mariadb://user@host/database; or @FILE, with the location in a file."`
}

// opened is a database that is open, with what keeps its audit and its record.
type opened struct {
	DB     *sqldb.DB
	Audit  *audit.Log
	Record *record.Record
}

// open opens the database that a server or migrate has made. A new file would be an empty record, of which no server
// knows.
func (d database) open(e *environment) (*opened, error) {
	at, err := d.DB.read("-db")
	if err != nil {
		return nil, err
	}
	if sqldb.Missing(at) {
		return nil, fmt.Errorf("there is no database %q; give -db, the one that the server has", at)
	}
	return openAt(e, at, nil)
}

// openOrMake opens the database, and makes its file if there is none. Rows of the audit are also written to lines.
func (d database) openOrMake(e *environment, lines io.Writer) (*opened, error) {
	at, err := d.DB.read("-db")
	if err != nil {
		return nil, err
	}
	return openAt(e, at, lines)
}

func openAt(e *environment, at string, lines io.Writer) (*opened, error) {
	db, err := sqldb.Open(e.ctx, at)
	if err != nil {
		return nil, err
	}
	log := audit.New(db, audit.Options{Lines: lines})
	return &opened{db, log, record.New(db, log)}, nil
}

// close writes what is left of the audit and closes the database. What goes wrong is added to the error of a command.
func (o *opened) close(err *error) {
	*err = errors.Join(*err, o.Audit.Close(), o.DB.Close())
}

type migrateCommand struct{ database }

// Run makes the tables.
func (c *migrateCommand) Run(e *environment) (err error) {
	o, err := c.openOrMake(e, nil)
	if err != nil {
		return err
	}
	defer o.close(&err)
	fmt.Fprintln(e.out, "the tables are those of this version")
	return nil
}

type backupCommand struct {
	database

	File string `arg:"" help:"The new file."`
}

// Run copies the database.
func (c *backupCommand) Run(e *environment) (err error) {
	o, err := c.open(e)
	if err != nil {
		return err
	}
	defer o.close(&err)
	if err := o.DB.Backup(e.ctx, c.File); err != nil {
		return err
	}
	fmt.Fprintf(e.out, "copied to %s\n", c.File)
	return nil
}
