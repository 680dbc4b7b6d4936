package sqldb

import "regexp"

// Driver returns how database/sql opens a location.
func Driver(location string) (driver, name string) {
	d, write, _, err := locate(location)
	if err != nil {
		panic(err)
	}
	return d.driver, write
}

// Tables returns the names of all tables.
func Tables() []string {
	tables := []string{versions}
	for _, statement := range migrations {
		if found := regexp.MustCompile(`^CREATE TABLE IF NOT EXISTS (\w+)`).FindStringSubmatch(statement); found != nil {
			tables = append(tables, found[1])
		}
	}
	return tables
}
