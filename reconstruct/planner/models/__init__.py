"""From a model's config.json to the cache layers that its model class builds, family by family."""
