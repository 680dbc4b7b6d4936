// The newest versions with which grpcmw has been tested, as newest.mod is for weir. To renew them, in grpcmw:
// f=../.ci/newest-grpcmw.mod; go get -modfile=$f google.golang.org/grpc@latest && go mod tidy -modfile=$f
module github.com/weir-go/weir/grpcmw

go 1.26.0

require (
	github.com/stretchr/testify v1.12.1
	github.com/weir-go/weir v0.0.0-00010101000000-000000000000
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/dunglas/httpsfv v1.1.2 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
)

replace github.com/weir-go/weir => ../
