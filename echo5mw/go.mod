module github.com/weir-go/weir/echo5mw

go 1.25.0

// As in weir's own go.mod, these versions are as low as the tests allow, and no advice. Below Echo 5.0.4 there is no
// echo.ResolveResponseStatus.
require (
	github.com/labstack/echo/v5 v5.0.4
	github.com/stretchr/testify v1.11.1
	github.com/weir-go/weir v0.0.0-00010101000000-000000000000
)

require (
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/dunglas/httpsfv v1.1.2 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	golang.org/x/time v0.14.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)

replace github.com/weir-go/weir => ../
