// Package contract holds the types of the HTTP API and the interface of its server. They are generated from
// openapi.yaml, except for the types for log-in.
package contract

//go:generate go run github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2 -config config.yaml ../openapi.yaml
