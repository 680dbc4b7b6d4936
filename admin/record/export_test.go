package record

// Driver returns how database/sql opens a location.
func Driver(location string) (driver, name string) {
	d, write, _, err := locate(location)
	if err != nil {
		panic(err)
	}
	return d.driver, write
}
