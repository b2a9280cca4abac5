module github.com/fileproc/fileproc/cache

go 1.26.1

replace github.com/fileproc/fileproc => ..

require (
	github.com/bmatcuk/doublestar/v4 v4.10.4
	github.com/stretchr/testify v1.12.1
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect
