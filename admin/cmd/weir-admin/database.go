package main

import (
	"errors"
	"fmt"

	"github.com/weir-go/weir/admin/internal/sqldb"
	_ "github.com/weir-go/weir/admin/internal/sqldb/drivers"
)

// database has the flag of the commands that open the database.
type database struct {
	DB location `name:"db" default:"weir.db" placeholder:"LOCATION" help:"The database: a file, postgres://user@host/database or mariadb://user@host/database; or @FILE, with the location in a file."`
}

// open opens the database.
func (d database) open(e *environment) (*sqldb.DB, error) {
	at, err := d.DB.read("-db")
	if err != nil {
		return nil, err
	}
	return sqldb.Open(e.ctx, at)
}

type migrateCommand struct{ database }

// Run makes the tables.
func (c *migrateCommand) Run(e *environment) error {
	db, err := c.open(e)
	if err != nil {
		return err
	}
	fmt.Fprintln(e.out, "the tables are those of this version")
	return db.Close()
}

type backupCommand struct {
	database

	File string `arg:"" help:"The new file."`
}

// Run copies the database.
func (c *backupCommand) Run(e *environment) error {
	db, err := c.open(e)
	if err != nil {
		return err
	}
	if err := errors.Join(db.Backup(e.ctx, c.File), db.Close()); err != nil {
		return err
	}
	fmt.Fprintf(e.out, "copied to %s\n", c.File)
	return nil
}
