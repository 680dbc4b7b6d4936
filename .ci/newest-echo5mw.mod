// The newest versions with which echo5mw has been tested, as newest.mod is for weir. To renew them, in echo5mw:
// f=../.ci/newest-echo5mw.mod; go get -modfile=$f github.com/labstack/echo/v5@latest && go mod tidy -modfile=$f
module github.com/weir-go/weir/echo5mw

go 1.25.0

require (
	github.com/labstack/echo/v5 v5.4.4
	github.com/stretchr/testify v1.12.1
	github.com/weir-go/weir v0.0.0-00010101000000-000000000000
)

require (
	github.com/dunglas/httpsfv v1.1.2 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/time v0.15.0 // indirect
)

replace github.com/weir-go/weir => ../
