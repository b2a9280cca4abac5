module github.com/fileproc/fileproc/cache

go 1.26.1

replace github.com/fileproc/fileproc => ..

require (
	github.com/bmatcuk/doublestar/v4 v4.10.4
	github.com/cespare/xxhash/v2 v2.3.0
	github.com/fileproc/fileproc v0.0.0-00010101000000-000000000000
	github.com/stretchr/testify v1.12.1
)

require (
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
