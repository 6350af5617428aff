package command_test

import (
	"strings"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/command"
)

// failFirstRelease deploys an app that never serves: its migration fails in two releases. No rollback is possible.
func (site *site) failFirstRelease() {
	site.t.Helper()
	other := strings.NewReplacer("name: shop", "name: broken", "shop.example.com", "broken.example.com").Replace(app)
	other = strings.Replace(other, "  envFiles: [shop.env]\n", "", 1)
	for _, tag := range []string{"1", "2"} {
		manifest := strings.Replace(other, "shop:1.4.2", "shop:"+tag, 1) + "  migrate: { command: [must-fail] }\n"
		site.write("broken/broken.yaml", manifest)
		out, stderr := site.roost(command.ExitFound, "deploy", "@broken/broken.yaml")
		contains(site.t, out, "App web/broken: MigrationFailed: ")
		contains(site.t, stderr, "App web/broken: the release does not serve; no earlier release has served, so there is no revision to roll back to")
		if strings.Contains(stderr, "rollback") {
			site.t.Errorf("a rollback is advised: %s", stderr)
		}
	}
	gone := &v1alpha1.App{}
	gone.Namespace, gone.Name = "web", "broken"
	if err := site.admin.Delete(site.t.Context(), gone); err != nil {
		site.t.Fatal(err)
	}
}
