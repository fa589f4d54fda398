// Package mariadb tests package sqlstore on MariaDB, whose dialect is that of MySQL. Where that is not installed,
// go test says "no tests to run".
package mariadb
