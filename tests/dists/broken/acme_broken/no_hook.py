def health_checks():
    return []
