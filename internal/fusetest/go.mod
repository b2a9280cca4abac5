module github.com/fileproc/fileproc/internal/fusetest

go 1.26.1

require (
	github.com/fileproc/fileproc v0.0.0
	github.com/hanwen/go-fuse/v2 v2.12.1
	github.com/stretchr/testify v1.12.1
	golang.org/x/sys v0.49.0
)

require (
	github.com/bmatcuk/doublestar/v4 v4.10.4 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)

replace github.com/fileproc/fileproc => ../..
