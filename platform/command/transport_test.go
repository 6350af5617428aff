package command_test

import (
	"strings"
	"testing"

	"github.com/dunlin-project/dunlin/platform/command"
)

// TestEncryptedFilesFitAConfigMap tests values just below and just above the limit when they are encrypted.
func TestEncryptedFilesFitAConfigMap(t *testing.T) {
	person := newPerson(t)
	person.roost(command.ExitFine, "init", "@apps", "shop")
	person.write("apps/shop.yaml", person.read("apps/shop.yaml")+"  envFiles: [shop.env]\n")
	person.write("apps/shop.env", "TOKEN="+strings.Repeat("x", 765<<10)+"\n")
	person.roost(command.ExitFine, "secrets", "encrypt", "@apps/shop.env")
	person.roost(command.ExitFine, "validate", "@apps")
	person.write("apps/shop.env", "TOKEN="+strings.Repeat("x", 770<<10)+"\n")
	person.roost(command.ExitFine, "secrets", "encrypt", "@apps/shop.env")
	out, _ := person.roost(command.ExitFound, "validate", "@apps")
	contains(t, out, "more than the limit of 1048576 for a ConfigMap; encrypted values are a third longer")
}
